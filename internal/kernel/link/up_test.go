package link_test

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// TestUp: links that are down are left out, and a link that is recreated under its name has another index.
func TestUp(t *testing.T) {
	netnstest.Enter(t)
	c, err := link.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	up := func(names ...string) []link.Link {
		t.Helper()
		list, err := c.Up()
		again, err2 := link.Up()
		if err != nil || err2 != nil || !slices.Equal(list, again) {
			t.Fatalf("%v %v, %v %v", list, err, again, err2)
		}
		var got []string
		for _, l := range list {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, names) {
			t.Fatalf("%v are up, want %v", got, names)
		}
		return list
	}
	ip("link", "add", "z0", "type", "veth", "peer", "name", "a0")
	up()
	ip("link", "set", "z0", "up")
	ip("link", "set", "a0", "up")
	first := up("a0", "z0")
	ip("link", "del", "z0")
	up()
	ip("link", "add", "z0", "type", "veth", "peer", "name", "a0")
	ip("link", "set", "z0", "up")
	if second := up("z0"); second[0].Index == first[1].Index {
		t.Errorf("the same index %d twice", second[0].Index)
	}
}
