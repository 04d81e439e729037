package app

import (
	"strings"
	"testing"
)

func TestLacks(t *testing.T) {
	for release, want := range map[string]int{"6.1.0-56-amd64": 3, "5.10.0": 3, "6.2": 2, "6.5.3": 1, "6.12.117+deb12-amd64": 1, "6.16.0": 0, "6.18.44-fc": 0, "7.0.1": 0, "": 0, "x": 0} {
		got := lacks(release)
		if n := len(strings.Split(got, "; ")); got == "" && want != 0 || got != "" && n != want {
			t.Errorf("%q lacks %q, want %d things", release, got, want)
		}
	}
}
