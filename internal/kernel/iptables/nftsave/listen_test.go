package nftsave

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// heard returns the commits that a Listener reports, as text.
func heard(t *testing.T, l *Listener) (told []string) {
	t.Helper()
	if _, err := l.Hear(t.Context(), func(c Commit) {
		told = append(told, fmt.Sprint(c.Opaque, c.Places))
	}); err != nil {
		t.Fatal(err)
	}
	return told
}

// TestListener: each commit is reported once, and none from before it began to listen.
func TestListener(t *testing.T) {
	h := newHost(t, Config{})
	l, err := OpenListener(Config{NetNS: h.FD()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	h.restore(xt.IPv4, "nat", ":A - [0:0]", ":B - [0:0]")
	listen := func() uint32 {
		t.Helper()
		g, err := l.Listen(t.Context())
		if err != nil || !l.Listening() {
			t.Fatal(g, err)
		}
		return g
	}
	first := listen()
	if told := heard(t, l); len(told) > 0 {
		t.Errorf("%q was told of what was before", told)
	}
	h.restore(xt.IPv4, "nat", "-A A -j RETURN", "-A B -j RETURN", "-A B -j ACCEPT")
	h.restore(xt.IPv4, "nat", "-A A -j RETURN")
	if told := heard(t, l); !slices.Equal(told, []string{"false [{4 nat A} {4 nat B}]", "false [{4 nat A}]"}) {
		t.Errorf("told %q", told)
	}
	// Of a commit that was at work when listening began a part may be missing.
	h.restore(xt.IPv4, "nat", "-A A -j RETURN")
	l.since = first + 3
	if told := heard(t, l); len(told) > 0 {
		t.Errorf("%q was told of what may have been heard in part", told)
	}
	h.restore(xt.IPv4, "nat", "-A B -j RETURN")
	if told := heard(t, l); !slices.Equal(told, []string{"false [{4 nat B}]"}) {
		t.Errorf("told %q", told)
	}
	l.now.Opaque = true // of a commit whose end is lost
	h.restore(xt.IPv4, "nat", "-A B -j RETURN")
	if g := listen(); g != first+5 {
		t.Errorf("it listens from %d on, not %d", g, first+5)
	}
	h.restore(xt.IPv4, "nat", "-A B -j RETURN")
	if told := heard(t, l); !slices.Equal(told, []string{"false [{4 nat B}]"}) {
		t.Errorf("told %q after it began anew", told)
	}
	l.Stop()
	if l.Listening() {
		t.Error("it listens on")
	}
}

// notification is a message of nf_tables with a table, and attributes behind it.
func notification(kind, flags uint16, family byte, attributes ...[]byte) netlink.Message {
	return netlink.Message{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | kind, Flags: flags, Body: append([]byte{family, 0, 0, 0}, bytes.Join(attributes, nil)...)}
}

func generationAttr(g uint32) []byte {
	b := binary.NativeEndian.AppendUint16(nil, 8)
	b = binary.NativeEndian.AppendUint16(b, unix.NFTA_GEN_ID)
	return binary.BigEndian.AppendUint32(b, g)
}

// TestWhatIsUnderstood: a message says that one chain has changed, or that it is of no matter,
// or it is not understood.
func TestWhatIsUnderstood(t *testing.T) {
	nat, mine := appendName(nil, unix.NFTA_RULE_TABLE, "nat"), appendName(nil, unix.NFTA_RULE_TABLE, "mine")
	chain, rules, hook := appendName(nil, unix.NFTA_CHAIN_NAME, "C"), appendName(nil, unix.NFTA_RULE_CHAIN, "C"), appendName(nil, unix.NFTA_CHAIN_HOOK, "")
	const create, excl, ip, ip6 = unix.NLM_F_CREATE, unix.NLM_F_EXCL, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6
	for name, c := range map[string]struct {
		m    netlink.Message
		want string
	}{
		"new chain":              {notification(unix.NFT_MSG_NEWCHAIN, excl, ip, nat, chain), "false [{4 nat C}]"},
		"new or other chain":     {notification(unix.NFT_MSG_NEWCHAIN, create, ip, nat, chain), "true []"},
		"renamed chain":          {notification(unix.NFT_MSG_NEWCHAIN, 0, ip, nat, chain), "true []"},
		"chain with a hook":      {notification(unix.NFT_MSG_NEWCHAIN, 0, ip, nat, chain, hook), "false [{4 nat C}]"},
		"chain is gone":          {notification(unix.NFT_MSG_DELCHAIN, 0, ip6, nat, chain), "false [{6 nat C}]"},
		"chain is destroyed":     {notification(msgDestroyChain, 0, ip, nat, chain), "false [{4 nat C}]"},
		"rule":                   {notification(unix.NFT_MSG_NEWRULE, create, ip6, nat, rules), "false [{6 nat C}]"},
		"rule is gone":           {notification(unix.NFT_MSG_DELRULE, 0, ip, nat, rules), "false [{4 nat C}]"},
		"rule is destroyed":      {notification(msgDestroyRule, 0, ip, nat, rules), "false [{4 nat C}]"},
		"rule without a chain":   {notification(unix.NFT_MSG_NEWRULE, 0, ip, nat), "true []"},
		"chain without a name":   {notification(unix.NFT_MSG_DELCHAIN, 0, ip, nat, rules), "true []"},
		"table":                  {notification(unix.NFT_MSG_NEWTABLE, create, ip, nat), "true []"},
		"table is gone":          {notification(unix.NFT_MSG_DELTABLE, 0, ip, nat), "true []"},
		"set":                    {notification(unix.NFT_MSG_NEWSET, 0, ip, nat, rules), "true []"},
		"another table":          {notification(unix.NFT_MSG_NEWTABLE, create, ip, mine), "false []"},
		"chain of another table": {notification(unix.NFT_MSG_NEWCHAIN, 0, ip, mine, chain), "false []"},
		"another family":         {notification(unix.NFT_MSG_DELTABLE, 0, unix.NFPROTO_INET, nat), "false []"},
		"no table":               {notification(unix.NFT_MSG_NEWRULE, 0, ip, rules), "true []"},
		"a kind of the future":   {notification(msgDestroyFlowtable+1, 0, ip, mine), "true []"},
		"cut off":                {notification(unix.NFT_MSG_NEWRULE, 0, ip, mine, []byte{9, 0, 2, 0, 'C'}), "true []"},
		"without its head":       {netlink.Message{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE, Body: []byte{2}}, "true []"},
		"of another subsystem":   {netlink.Message{Type: unix.NLMSG_ERROR, Body: []byte{0, 0, 0, 0}}, "true []"},
	} {
		var l Listener
		told := []string{}
		take := func(m netlink.Message) {
			l.take(m, func(c Commit) { told = append(told, fmt.Sprint(c.Generation, c.Opaque, c.Places)) })
		}
		take(c.m)
		take(notification(unix.NFT_MSG_NEWGEN, 0, 0, generationAttr(7)))
		take(notification(unix.NFT_MSG_NEWGEN, 0, 0, generationAttr(8)))
		take(notification(unix.NFT_MSG_NEWGEN, 0, 0))
		if want := []string{"7 " + c.want, "8 false []", "0 false []"}; !slices.Equal(told, want) {
			t.Errorf("%s: told %q, not %q", name, told, want)
		}
	}
}

// TestPlacesOfOneName: chains of one name in several tables are several chains, and each is reported once.
func TestPlacesOfOneName(t *testing.T) {
	var l Listener
	var told []Place
	rule := func(family byte, table string) {
		l.take(notification(unix.NFT_MSG_NEWRULE, 0, family, appendName(nil, unix.NFTA_RULE_TABLE, table), appendName(nil, unix.NFTA_RULE_CHAIN, "C")), nil)
	}
	for range 2 {
		rule(unix.NFPROTO_IPV4, "nat")
	}
	rule(unix.NFPROTO_IPV6, "nat")
	rule(unix.NFPROTO_IPV6, "filter")
	l.take(notification(unix.NFT_MSG_NEWGEN, 0, 0, generationAttr(7)), func(c Commit) { told = slices.Clone(c.Places) })
	if want := []Place{{xt.IPv4, "nat", "C"}, {xt.IPv6, "nat", "C"}, {xt.IPv6, "filter", "C"}}; !slices.Equal(told, want) {
		t.Errorf("told %v, not %v", told, want)
	}
}

// TestVeryManyPlaces: what one commit names is bounded.
func TestVeryManyPlaces(t *testing.T) {
	var l Listener
	nat := appendName(nil, unix.NFTA_RULE_TABLE, "nat")
	for i := range maxPlaces + 1 {
		l.take(notification(unix.NFT_MSG_DELRULE, 0, unix.NFPROTO_IPV4, nat, appendName(nil, unix.NFTA_RULE_CHAIN, fmt.Sprint("C", i))), nil)
	}
	if len(l.now.Places) > maxPlaces || !l.now.Opaque {
		t.Errorf("%d chains, opaque: %t", len(l.now.Places), l.now.Opaque)
	}
}

// TestHearsNoMore: after any failure it does not listen, for something may be lost.
func TestHearsNoMore(t *testing.T) {
	faults := &netlink.Faults{}
	h := newHost(t, Config{})
	l, err := OpenListener(Config{NetNS: h.FD(), Wrap: faults.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, fault := range []netlink.Fault{netlink.Overrun, netlink.Truncated, netlink.Cut, netlink.Exhausted, netlink.Broken} {
		if _, err := l.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.restore(xt.IPv4, "nat", fmt.Sprintf(":A%d - [0:0]", fault))
		_, _, received := faults.Calls()
		faults.OnReceive = func(call int) netlink.Fault {
			if call == received+1 { // the first is the generation
				return fault
			}
			return netlink.None
		}
		_, err := l.Hear(t.Context(), func(Commit) {})
		faults.OnReceive = nil
		if err == nil || l.Listening() {
			t.Errorf("%s: %v, listening: %t", fault, err, l.Listening())
		}
	}
	if _, err := l.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.restore(xt.IPv4, "nat", ":B - [0:0]")
	_, _, received := faults.Calls()
	faults.OnReceive = func(call int) netlink.Fault {
		if call == received+1 {
			return netlink.Interrupted
		}
		return netlink.None
	}
	if told := heard(t, l); !slices.Equal(told, []string{"false [{4 nat B}]"}) {
		t.Errorf("told %q where a signal came", told)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if _, err := l.Listen(ended); err == nil || l.Listening() {
		t.Errorf("%v where the context has ended", err)
	}
}

// FuzzNotification: no input makes the Listener report a commit with a chain that the input does not contain.
func FuzzNotification(f *testing.F) {
	f.Add(uint16(unix.NFT_MSG_NEWRULE), uint16(0), []byte{2, 0, 0, 0, 8, 0, 1, 0, 'n', 'a', 't', 0, 6, 0, 2, 0, 'C', 0})
	f.Fuzz(func(t *testing.T, kind, flags uint16, data []byte) {
		var l Listener
		l.take(netlink.Message{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | kind&0xff, Flags: flags, Body: data}, func(Commit) {})
		for _, p := range l.now.Places {
			if !bytes.Contains(data, []byte(p.Chain)) || p.Chain == "" || !isIPTables(p.Table) {
				t.Errorf("%v of %x", p, data)
			}
		}
	})
}
