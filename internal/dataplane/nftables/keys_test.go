package nftables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

func frontendKey(t *testing.T, addr string, port uint16) model.FrontendKey {
	t.Helper()
	if addr == "" {
		return model.FrontendKey{Family: model.IPv4, Protocol: model.UDP, Port: port}
	}
	a := netip.MustParseAddr(addr)
	return model.FrontendKey{Family: model.FamilyOf(a), Protocol: model.UDP, Addr: a, Port: port}
}

func TestKeysGoToTheKernelAndBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		ident ident
		key   model.FrontendKey
		want  string
	}{
		{"vip", identVIP, frontendKey(t, "10.96.0.1", 0x1234), "\x0a\x60\x00\x01\x11\x00\x00\x00\x12\x34\x00\x00"},
		{"nodeport", identNodePort, frontendKey(t, "", 30080), "\x11\x00\x00\x00\x75\x80\x00\x00"},
		{"hairpin", identHairpin, frontendKey(t, "10.1.0.2", 80), "\x0a\x01\x00\x02\x0a\x01\x00\x02\x11\x00\x00\x00\x00\x50\x00\x00"},
		{"range", identRange, model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Addr: netip.MustParseAddr("10.0.0.9"), Port: 8000, LastPort: 8999},
			"\x0a\x00\x00\x09\x06\x00\x00\x00\x1f\x40\x00\x00"},
		{"vip6", identVIP, frontendKey(t, "fd00::5", 53),
			"\xfd\x00" + strings.Repeat("\x00", 13) + "\x05\x11\x00\x00\x00\x00\x35\x00\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := string(appendID(nil, c.key))
			key := appendKey(nil, c.ident, id)
			if string(key) != c.want {
				t.Errorf("kernel key is %x, want %x", key, c.want)
			}
			if n := keyLen(c.ident, c.key.Family); n != len(key) {
				t.Errorf("keyLen is %d of %d", n, len(key))
			}
			back, ok := appendIDOf(nil, c.ident, key, appendKeyEnd(nil, c.ident, id))
			if !ok || string(back) != id {
				t.Errorf("back it is %x, want %x", back, id)
			}
		})
	}
}

func TestForeignHairpinPairIsStray(t *testing.T) {
	key := []byte{10, 0, 0, 1, 10, 0, 0, 2, 6, 0, 0, 0, 0, 80, 0, 0}
	if _, ok := appendIDOf(nil, identHairpin, key, key); ok {
		t.Error("a pair of two addresses passes for one of ours")
	}
}

func TestStrayIDsNameTheElement(t *testing.T) {
	for _, e := range []nft.Element{
		{Key: []byte{1, 2, 3, 4}},
		{Key: []byte{1, 2, 3, 4}, KeyEnd: []byte{1, 2, 3, 9}},
		{Key: []byte{9, 9, 9, 9}, Flags: nft.ElementIntervalEnd},
	} {
		set, back := parseStrayID(strayID("eps", &e))
		if set != "eps" || string(back.Key) != string(e.Key) || string(back.KeyEnd) != string(e.KeyEnd) || back.Flags != e.Flags {
			t.Errorf("%v comes back as %v of %s", e, back, set)
		}
	}
}

func TestKeyString(t *testing.T) {
	d := New(Params{})
	v4 := string(appendID(nil, frontendKey(t, "10.96.0.1", 80)))
	for _, c := range []struct {
		key  dataplane.Key
		want string
	}{
		{dataplane.Key{Kind: dataplane.KindRoot, Family: model.IPv6}, "table ip6 fairlead"},
		{dataplane.Key{Kind: kindSet, Family: model.IPv4, ID: "eps"}, "set ip fairlead eps"},
		{dataplane.Key{Kind: kindLeafChain, Family: model.IPv4, ID: "lb-4"}, "chain ip fairlead lb-4"},
		{dataplane.Key{Kind: kindServices, Family: model.IPv4, ID: v4}, "services 10.96.0.1:80/UDP"},
		{dataplane.Key{Kind: kindRanges, Family: model.IPv4, ID: v4 + "\x00\x63"}, "ranges 10.96.0.1:80-99/UDP"},
		{dataplane.Key{Kind: kindRangeEndpoints, Family: model.IPv4, ID: v4[:5]}, "range-eps 10.96.0.1:0/UDP"},
		{dataplane.Key{Kind: kindNodePorts, Family: model.IPv4, ID: v4[4:]}, "nodeports *4:80/UDP"},
		{dataplane.Key{Kind: kindClusterIP, Family: model.IPv4, ID: v4[:4]}, "cluster-ips 10.96.0.1"},
		{dataplane.Key{Kind: kindPodCIDRs, Family: model.IPv6}, "pod-cidrs IPv6"},
		{dataplane.Key{Kind: kindStray, Family: model.IPv4, ID: strayID("eps", &nft.Element{Key: []byte{1}})}, "foreign element 01 of ip fairlead eps"},
		{dataplane.Key{Kind: 200, Family: model.IPv4, ID: "?"}, "200/IPv4/3f"},
	} {
		if got := d.KeyString(c.key); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// Every kind has a set, in the order in which setDefs is indexed.
func TestSetsOfKinds(t *testing.T) {
	for k := kindPodCIDRs; k < kinds; k++ {
		if def := defOf(k); def == nil || def.kind != k {
			t.Errorf("kind %d is %v", k, def)
		}
	}
	if defOf(kindStray) != nil || defOf(kinds) != nil {
		t.Error("a kind without a set has one")
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []string
	}{
		{"one", []string{"10.0.0.0/8"}},
		{"neighbours", []string{"10.0.0.0/24", "10.0.1.0/24"}},
		{"to the end", []string{"10.0.0.0/8", "224.0.0.0/3"}},
		{"v6", []string{"fd00::/8", "2001:db8::/32"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var prefixes []netip.Prefix
			var bounds []bound
			for _, s := range c.in {
				p := netip.MustParsePrefix(s)
				prefixes = append(prefixes, p)
				for _, e := range nft.PrefixElements(p) {
					bounds = append([]bound{{string(e.Key), e.Flags&nft.ElementIntervalEnd != 0}}, bounds...)
				}
			}
			if got, want := joinBounds(bounds, prefixes[0].Addr().BitLen()/8), packPrefixes(prefixes); got != want {
				t.Errorf("got %x, want %x", got, want)
			}
		})
	}
}
