package nfacct

import (
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// ownTable opens the table of a network namespace of the test's own, to which the
// test's goroutine moves for good.
func ownTable(t *testing.T) (*Conn, *netnstest.Namespace) {
	t.Helper()
	return onFaultySockets(t, nil)
}

// onFaultySockets does the same with something in front of each socket.
func onFaultySockets(t *testing.T, wrap func(netlink.Wire) netlink.Wire) (*Conn, *netnstest.Namespace) {
	t.Helper()
	ns := netnstest.Enter(t)
	c, err := Open(Config{Wrap: wrap})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, ns
}

func list(t *testing.T, table Table) map[string]Count {
	t.Helper()
	all, err := table.List()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Count{}
	for _, c := range all {
		out[c.Name] = c
	}
	if len(out) != len(all) {
		t.Fatalf("a counter comes twice: %v", all)
	}
	return out
}

// lifeOf holds the real table and the fake to the same words.
func lifeOf(t *testing.T, table Table) {
	t.Helper()
	longest := strings.Repeat("n", MaxName)
	if _, err := table.Read("a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("read of nothing: %v", err)
	}
	if got := list(t, table); len(got) != 0 {
		t.Errorf("a new namespace has %v", got)
	}
	for _, name := range []string{"a", longest, "a"} { // the second time there is nothing to do
		if err := table.Ensure(name); err != nil {
			t.Fatal(err)
		}
	}
	if got := list(t, table); len(got) != 2 || got["a"] != (Count{Name: "a"}) || got[longest].Name != longest {
		t.Errorf("listed: %v", got)
	}
	for _, bad := range []string{"", longest + "n"} { // deleting "" would delete all, in the kernel
		if table.Ensure(bad) == nil || table.Delete(bad) == nil {
			t.Errorf("name %q is taken", bad)
		}
	}
	for range 2 {
		if err := table.Delete("a"); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if _, err := table.Read("a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("read after delete: %v", err)
	}
	if got := list(t, table); len(got) != 1 {
		t.Errorf("left: %v", got)
	}
}

func TestLifeOfACounter(t *testing.T) {
	t.Run("fake", func(t *testing.T) { lifeOf(t, NewFake()) })
	t.Run("kernel", func(t *testing.T) {
		table, _ := ownTable(t)
		lifeOf(t, table)
	})
}

// inUse holds both to what happens while a rule counts; count makes three packets
// of 30 bytes pass, free takes the rule away.
func inUse(t *testing.T, table Table, count, free func()) {
	t.Helper()
	count()
	if got, err := table.Read("a"); err != nil || got != (Count{"a", 3, 90}) {
		t.Errorf("counted %+v, %v", got, err)
	}
	if err := table.Ensure("a"); err != nil {
		t.Error(err)
	}
	if got := list(t, table)["a"]; got != (Count{"a", 3, 90}) {
		t.Errorf("after a second Ensure it is %+v", got)
	}
	if err := table.Delete("a"); !errors.Is(err, ErrInUse) {
		t.Errorf("delete of a counter in use: %v", err)
	}
	free()
	if err := table.Delete("a"); err != nil {
		t.Error(err)
	}
}

func TestCounterInUse(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		f := NewFake()
		inUse(t, f, func() { f.Count("a", 3, 90); f.Use("a", true) }, func() { f.Use("a", false) })
	})
	t.Run("kernel", func(t *testing.T) {
		c, _ := ownTable(t)
		t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "xtables.lock"))
		run := func(line string) {
			if out, err := exec.Command("sh", "-ec", line).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
		if err := c.Ensure("a"); err != nil {
			t.Fatal(err)
		}
		const rule = " OUTPUT -p udp --dport 9 -m nfacct --nfacct-name a"
		run("ip link set lo up; iptables-legacy -A" + rule)
		inUse(t, c, func() {
			conn, err := net.Dial("udp", "127.0.0.1:9")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			for sent := 0; sent < 3; {
				// 20 bytes of IP, 8 of UDP, 2 of payload. A rejection that arrived earlier is returned
				// instead of sending.
				if _, err := conn.Write([]byte("hi")); err == nil {
					sent++
				} else if !errors.Is(err, unix.ECONNREFUSED) {
					t.Fatal(err)
				}
			}
		}, func() { run("iptables-legacy -D" + rule) })
	})
}

// TestNamespacesAreApart: the descriptor given to Open decides, not the thread.
func TestNamespacesAreApart(t *testing.T) {
	first, ns := ownTable(t)
	second, _ := ownTable(t)
	if err := first.Ensure("a"); err != nil {
		t.Fatal(err)
	}
	if got := list(t, second); len(got) != 0 {
		t.Errorf("another namespace has %v", got)
	}
	back, err := Open(Config{NetNS: ns.FD()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = back.Close() }()
	if _, err := back.Read("a"); err != nil {
		t.Error(err)
	}
}
