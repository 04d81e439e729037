package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

var ours = regexp.MustCompile(`/flpeers-([0-9]+)-[^/]+$`)

// sweep removes cgroups and scratch folders of runs that were killed; netlab does the same for namespaces. The
// processes of these runs have ended with them.
func sweep() {
	for _, pattern := range []string{cgroupRoot + "/flpeers-*", cgroupRoot + "/*/flpeers-*", filepath.Join(os.TempDir(), "flpeers-*")} {
		found, _ := filepath.Glob(pattern) // the pattern is valid
		for _, path := range found {
			m := ours.FindStringSubmatch(path)
			if m == nil {
				continue
			}
			if _, err := os.Stat("/proc/" + m[1]); !os.IsNotExist(err) {
				continue
			}
			remove := os.Remove // a cgroup: its files cannot be removed one by one
			if filepath.Dir(path) == filepath.Clean(os.TempDir()) {
				remove = os.RemoveAll
			}
			if err := remove(path); err != nil {
				fmt.Fprintln(os.Stderr, "peers: sweep:", err)
			}
		}
	}
}
