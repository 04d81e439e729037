package nftsave

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// host is a network namespace of the test's own, with the programs in it.
type host struct {
	*testing.T
	*netnstest.Namespace
	*Reader
}

func newHost(t *testing.T, cfg Config) *host {
	t.Helper()
	if _, err := exec.LookPath("iptables-nft-restore"); err != nil {
		t.Skipf("SKIPPED, not run: %v", err) // this backend is not installed; scripts/deps.sh installs both
	}
	h := &host{T: t, Namespace: netnstest.New(t)}
	cfg.NetNS = h.FD()
	var err error
	if h.Reader, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

var families = [...]xt.Family{xt.IPv4, xt.IPv6}

func program(f xt.Family, verb string) string {
	if f == xt.IPv6 {
		return "ip6tables-nft" + verb
	}
	return "iptables-nft" + verb
}

// run runs a program of the host's.
func (h *host) run(input string, name string, args ...string) (string, error) {
	var out bytes.Buffer
	err := h.Do(func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
		return cmd.Run()
	})
	return out.String(), err
}

// restore writes a table's lines.
func (h *host) restore(f xt.Family, table string, lines ...string) {
	h.Helper()
	input := "*" + table + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
	if out, err := h.run(input, program(f, "-restore"), "--noflush"); err != nil {
		h.Fatalf("%v: %s\n%s", err, out, input)
	}
}

// printed are the rules that the program prints of a table, and the chains without a hook.
func (h *host) printed(f xt.Family, table string) []string {
	h.Helper()
	out, err := h.run("", program(f, "-save"), "-t", table)
	if err != nil {
		h.Fatalf("%v: %s", err, out)
	}
	var keep []string
	for l := range strings.Lines(out) {
		l = strings.TrimSuffix(l, "\n")
		if strings.HasPrefix(l, "-A ") || strings.HasPrefix(l, ":") && strings.HasSuffix(l, " - [0:0]") {
			keep = append(keep, l)
		}
	}
	slices.Sort(keep)
	return keep
}

func anyChain(string) bool { return true }

func wait(context.Context) error { return nil }

// read returns the lines of a table, sorted, for chains come in an order of the kernel's.
func (h *host) read(f xt.Family, table string, ours func(string) bool) ([]string, error) {
	var got []string
	err := h.Read(h.Context(), Request{Family: f, Table: table, Ours: ours, Yield: wait}, func(line []byte) error {
		got = append(got, string(line))
		return nil
	})
	slices.Sort(got)
	return got, err
}

// same fails unless the Reader reads what the program prints.
func (h *host) same(f xt.Family, table string) {
	h.Helper()
	got, err := h.read(f, table, anyChain)
	if err != nil {
		h.Fatal(err)
	}
	if want := h.printed(f, table); !slices.Equal(got, want) {
		h.Errorf("read\n%s\nprinted\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (h *host) unknown(f xt.Family, table string, ours func(string) bool) {
	h.Helper()
	if got, err := h.read(f, table, ours); !errors.Is(err, ErrUnknown) {
		h.Errorf("want ErrUnknown, got %v and\n%s", err, strings.Join(got, "\n"))
	}
}
