package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFindingsAreHeld: docs/findings.md names, for each finding of the reviews, the
// tests that hold it. They exist, and no finding is left out.
func TestFindingsAreHeld(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "findings.md"))
	if err != nil {
		t.Fatal(err)
	}
	for letter, n := range map[string]int{"C": 17, "V": 12, "H": 12, "M": 12, "P": 10, "F": 20} {
		for i := range n {
			if id := fmt.Sprintf("%s%d", letter, i+1); !strings.Contains(string(page), "\n| "+id+" |") {
				t.Errorf("%s has no line", id)
			}
		}
	}
	name := "`((?:Test|Fuzz)\\w+)(?:/([\\w/]+))?`"
	places := regexp.MustCompile(name + `(?:, ` + name + `)* \(([a-z0-9/]+)\)`)
	one := regexp.MustCompile(name)
	held := 0
	for _, place := range places.FindAllStringSubmatch(string(page), -1) {
		tests := testsOf(t, place[len(place)-1])
		for _, test := range one.FindAllStringSubmatch(place[0], -1) {
			held++
			if !strings.Contains(tests, "\nfunc "+test[1]+"(") {
				t.Errorf("%s has no %s", place[len(place)-1], test[1])
			}
			if test[2] != "" && !strings.Contains(tests, `"`+test[2]+`"`) {
				t.Errorf("%s: %s has no %s", place[len(place)-1], test[1], test[2])
			}
		}
	}
	if all := len(one.FindAllString(string(page), -1)); held != all-1 { // this test stands alone
		t.Errorf("%d of %d names of tests stand before the folder of their package", held, all)
	}
}

// testsOf is the text of all tests of a folder.
func testsOf(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(data)
	}
	return text.String()
}
