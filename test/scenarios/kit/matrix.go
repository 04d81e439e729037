package kit

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Matrix prints a table of scenarios and modes, the failures, the reasons why variants are not applicable, and the counts. It reports whether all
// variants passed.
func Matrix(w io.Writer, results []Result) bool {
	var names, modes []string
	cells := map[[2]string][]Result{}
	for _, r := range results {
		name := r.Variant.Scenario.Name
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if !slices.Contains(modes, r.Mode) {
			modes = append(modes, r.Mode)
		}
		cells[[2]string{name, r.Mode}] = append(cells[[2]string{name, r.Mode}], r)
	}
	width := 8
	for _, n := range names {
		width = max(width, len(n))
	}
	fmt.Fprintf(w, "%-*s", width, "scenario")
	for _, m := range modes {
		fmt.Fprintf(w, "  %-14s", m)
	}
	fmt.Fprintln(w)
	for _, n := range names {
		fmt.Fprintf(w, "%-*s", width, n)
		for _, m := range modes {
			fmt.Fprintf(w, "  %-14s", cell(cells[[2]string{n, m}]))
		}
		fmt.Fprintln(w)
	}
	reasons(w, results)
	passed, failed, not := 0, 0, 0
	for _, r := range results {
		switch {
		case r.NotApplicable != "":
			not++
		case r.Err != nil:
			failed++
			fmt.Fprintf(w, "\nFAIL %s in %s mode\n   %v\n", r.Variant.Name(), r.Mode, r.Err)
		default:
			passed++
		}
	}
	fmt.Fprintf(w, "\n%d passed, %d failed, %d not applicable; %d scenarios, %d variants\n", passed, failed, not, len(names), len(results))
	return failed == 0 && passed > 0
}

func cell(rs []Result) string {
	passed, not := 0, 0
	for _, r := range rs {
		if r.NotApplicable != "" {
			not++
		} else if r.Err == nil {
			passed++
		}
	}
	switch {
	case len(rs) == not:
		return "-"
	case passed == len(rs)-not:
		return fmt.Sprintf("pass %d/%d", passed, len(rs)-not)
	}
	return fmt.Sprintf("FAIL %d/%d", passed, len(rs)-not)
}

func reasons(w io.Writer, results []Result) {
	var seen []string
	for _, r := range results {
		if r.NotApplicable == "" {
			continue
		}
		line := fmt.Sprintf("%s in %s mode: %s", r.Variant.Scenario.Name, r.Mode, r.NotApplicable)
		if !slices.Contains(seen, line) {
			seen = append(seen, line)
		}
	}
	if len(seen) > 0 {
		fmt.Fprintf(w, "\nnot applicable, because\n   %s\n", strings.Join(seen, "\n   "))
	}
}
