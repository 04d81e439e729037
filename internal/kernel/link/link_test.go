package link_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// device makes a link; a veth, since not every kernel has dummies.
func device(t *testing.T, name string) netlink.Link {
	t.Helper()
	l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"}
	if err := netlink.LinkAdd(l); err != nil {
		t.Fatal(err)
	}
	return l
}

func address(t *testing.T, text string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func until(t *testing.T, c *link.Conn, what string, ok func([]link.Addr) bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		list, err := c.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		if ok(list) {
			return
		}
		select {
		case <-c.Changed():
		case <-deadline:
			t.Fatalf("never came: %s; now %v", what, list)
		}
	}
}

func TestAddresses(t *testing.T) {
	netnstest.Enter(t)
	c, err := link.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if list, err := c.Addrs(); err != nil || len(list) != 0 {
		t.Fatalf("a fresh namespace has %v, %v", list, err)
	}
	d := device(t, "d0")
	for _, a := range []string{"192.0.2.7/24", "2001:db8::7/64"} {
		if err := netlink.AddrAdd(d, address(t, a)); err != nil {
			t.Fatal(err)
		}
	}
	want := []link.Addr{
		{Prefix: netip.MustParsePrefix("192.0.2.7/24"), Link: "d0"},
		{Prefix: netip.MustParsePrefix("2001:db8::7/64"), Link: "d0"},
	}
	until(t, c, "both addresses", func(l []link.Addr) bool { return slices.Equal(l, want) })
	if err := netlink.LinkSetName(d, "d1"); err != nil {
		t.Fatal(err)
	}
	until(t, c, "new name", func(l []link.Addr) bool { return len(l) == 2 && l[0].Link == "d1" })
	if err := netlink.AddrDel(d, address(t, "192.0.2.7/24")); err != nil {
		t.Fatal(err)
	}
	until(t, c, "one left", func(l []link.Addr) bool { return len(l) == 1 })
	if err := netlink.LinkDel(d); err != nil {
		t.Fatal(err)
	}
	until(t, c, "none left", func(l []link.Addr) bool { return len(l) == 0 })
}

// A Conn keeps to the namespace it was opened in.
func TestStaysInItsNamespace(t *testing.T) {
	netnstest.Enter(t)
	d := device(t, "d0")
	if err := netlink.AddrAdd(d, address(t, "192.0.2.7/24")); err != nil {
		t.Fatal(err)
	}
	c, err := link.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make(chan []link.Addr)
	go func() { // on another thread, in the namespace the tests began in
		list, err := c.Addrs()
		if err != nil {
			t.Error(err)
		}
		got <- list
	}()
	if list := <-got; len(list) != 1 || list[0].Link != "d0" {
		t.Errorf("got %v", list)
	}
}

func TestCloseEndsIt(t *testing.T) {
	netnstest.Enter(t)
	c, err := link.Open()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	select {
	case <-c.Changed():
	case <-time.After(30 * time.Second):
		t.Fatal("the end is not told")
	}
	if _, err := c.Addrs(); !errors.Is(err, link.ErrLost) {
		t.Errorf("got %v", err)
	}
}
