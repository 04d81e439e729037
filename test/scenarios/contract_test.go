package scenarios_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEachRowOfTheContractHasScenarios checks that the last cell of each row of docs/design/contract.md's table names scenarios that exist. "*"
// stands for any part of a name.
func TestEachRowOfTheContractHasScenarios(t *testing.T) {
	page, err := os.ReadFile("../../docs/design/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "| Scenarios |\n|---|---|---|---|---|\n")
	if !found {
		t.Fatal("contract.md has no table with the column Scenarios")
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) < 17 {
		t.Errorf("%d rows, want one for each point", len(rows))
	}
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(cells) < 4 || len(names) == 0 {
			t.Errorf("no scenario: %s", row)
		}
		for _, name := range names {
			if files, err := filepath.Glob(name[1] + ".txtar"); err != nil || len(files) == 0 {
				t.Errorf("%s | %s: no scenario %q (%v)", cells[0], cells[1], name[1], err)
			}
		}
	}
}
