package iptables

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/iptables/nftsave"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// ownChains is the number of owned chains in the nat table of a crowd.
const ownChains = 40

var crowdTables = []string{"nat", "filter"}

// crowd is a namespace in which other programs write concurrently, and a driver's cached state of
// the owned chains.
type crowd struct {
	*testing.T
	*netnstest.Namespace
	c      *Conn
	faults *netlink.Faults
	marks  map[string]Mark
	lines  map[string]map[string][]string // of each table's chains
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	if _, err := Installed(NFT); err != nil {
		t.Skipf("SKIPPED, not run: %v", err) // this backend is not installed; scripts/deps.sh installs both
	}
	w := &crowd{T: t, Namespace: netnstest.New(t), faults: &netlink.Faults{}, marks: map[string]Mark{}, lines: map[string]map[string][]string{}}
	var err error
	w.c, err = open(Config{Backend: NFT, Programs: Programs{Suffix: "-nft"}, Namespace: w.FD()}, nftsave.Config{NetNS: w.FD(), Wrap: w.faults.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.c.Close() })
	lines := []string{"*nat"}
	for i := range ownChains {
		lines = append(lines, fmt.Sprintf(":OURS-%d - [0:0]", i), fmt.Sprintf("-A OURS-%d -s 10.0.0.%d/32 -j RETURN", i, i))
	}
	lines = append(lines, "-A OURS-1 -j OURS-2", "-A OUTPUT -j OURS-1", "COMMIT", "*filter", ":OURS-F - [0:0]", "-A OURS-F -j RETURN", "-A FORWARD -j OURS-F", "COMMIT")
	w.restore(lines...)
	w.warm()
	return w
}

// sh runs a command of another program.
func (w *crowd) sh(script string) {
	w.Helper()
	if out, err := w.try(script); err != nil {
		w.Fatalf("%s: %v: %s", script, err, out)
	}
}

func (w *crowd) try(script string) (out []byte, err error) {
	err = w.Do(func() error {
		cmd := exec.Command("sh", "-ec", script)
		cmd.Env = append(cmd.Environ(), "IPT=iptables-nft", "IP6T=ip6tables-nft")
		out, err = cmd.CombinedOutput()
		return err
	})
	return out, err
}

// restore does what we do.
func (w *crowd) restore(lines ...string) Stamp {
	w.Helper()
	input := strings.Join(lines, "\n") + "\n"
	s, err := w.c.Restore(w.Context(), Restore{Family: IPv4, Input: []byte(input), Commits: strings.Count(input, "COMMIT")})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// read returns the lines of what is read of a table, by chains.
func (w *crowd) read(r Reading) (map[string][]string, error) {
	got := map[string][]string{}
	r.Family, r.Ours = IPv4, func(chain string) bool { return strings.HasPrefix(chain, "OURS-") }
	err := w.c.Read(w.Context(), r, func(line []byte) error {
		chain, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(string(line), ":"), "-A "), " ")
		got[chain] = append(got[chain], string(line))
		return nil
	})
	return got, err
}

// warm reads both tables as a Survey does, and returns the owned chains that were read, sorted.
func (w *crowd) warm() (read []string) {
	w.Helper()
	read, err := w.tryWarm()
	if err != nil {
		w.Fatal(err)
	}
	return read
}

func (w *crowd) tryWarm() (read []string, err error) {
	for _, table := range crowdTables {
		last, now := w.lines[table], map[string][]string{}
		var began Mark
		got, err := w.read(Reading{Table: table, Since: w.marks[table], Began: func(m Mark) { began = m },
			Same: func(chain string) bool {
				lines, known := last[chain]
				if known {
					now[chain] = lines
				}
				return known
			}})
		if err != nil {
			return nil, err
		}
		for chain := range got {
			if strings.HasPrefix(chain, "OURS-") {
				read = append(read, chain)
			}
		}
		maps.Copy(now, got)
		w.lines[table], w.marks[table] = now, began
	}
	slices.Sort(read)
	return read, nil
}

// ours are the owned chains that warm has found.
func (w *crowd) ours() (names []string) {
	for _, table := range crowdTables {
		for chain := range w.lines[table] {
			if strings.HasPrefix(chain, "OURS-") {
				names = append(names, chain)
			}
		}
	}
	slices.Sort(names)
	return names
}

// isTrue fails where what warm has found is not what is there.
func (w *crowd) isTrue(what string) {
	w.Helper()
	for _, table := range crowdTables {
		there, err := w.read(Reading{Table: table})
		if err != nil {
			w.Fatal(err)
		}
		found := w.lines[table]
		for _, chain := range slices.Sorted(maps.Keys(there)) {
			if !slices.Equal(there[chain], found[chain]) {
				w.Errorf("%s: %s %s holds %q, found was %q", what, table, chain, there[chain], found[chain])
			}
		}
		if len(there) != len(found) {
			w.Errorf("%s: %d chains are in %s, %d were found", what, len(there), table, len(found))
		}
	}
}

// dumps counts the questions to the kernel while f runs.
func (w *crowd) dumps(f func()) int {
	_, before, _ := w.faults.Calls()
	f()
	_, after, _ := w.faults.Calls()
	return after - before
}
