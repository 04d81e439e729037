package netlab

import (
	"os"
	"path/filepath"
	"regexp"

	"github.com/vishvananda/netns"
)

var labName = regexp.MustCompile(`^fl([0-9]+)-[0-9]+-`)

// Sweep removes the namespaces of labs whose process has ended, and returns how many. New calls it: a process killed by SIGKILL cannot remove its own
// namespaces.
func Sweep() int {
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		return 0 // no named namespace has ever been created
	}
	removed := 0
	for _, e := range entries {
		m := labName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join("/proc", m[1])); err == nil {
			continue
		}
		if netns.DeleteNamed(e.Name()) == nil {
			removed++
		}
	}
	return removed
}
