package app

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane/nftables"
)

// lacks returns in one line the features that a kernel release (uname -r) lacks and the nftables mode works without; "" if it lacks nothing.
func lacks(release string) string {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return ""
	}
	var all []string
	for _, since := range []struct {
		major, minor int
		what         string
	}{
		{6, 2, "deleting a chain together with the rules that jump to it (6.2): an unused chain stays for some seconds"},
		{6, 5, "sets that can grow (6.5): when a set is full the agent rebuilds the table in one transaction, and session affinity remembers at most 65 535 clients of a Service port"},
		{6, 16, "sets that report their size (6.16): clients of session affinity are counted by reading the sets"},
	} {
		if major < since.major || major == since.major && minor < since.minor {
			all = append(all, since.what)
		}
	}
	return strings.Join(all, "; ")
}

// tellLacks logs the features that the kernel lacks, in nftables mode.
func (a *agent) tellLacks() {
	if a.cfg.Mode != nftables.Name {
		return
	}
	if what := lacks(release()); what != "" {
		a.log.Info("Services work; this kernel lacks features of newer kernels", "kernel", release(), "lacks", what)
	}
}
