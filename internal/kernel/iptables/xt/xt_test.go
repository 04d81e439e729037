package xt

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestShare: a probability is what printf makes of it.
func TestShare(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	parts := []uint32{0, 1, 2, 3, 1 << 30, 1<<31 - 1, 1 << 31, 715827883}
	for range 100_000 {
		parts = append(parts, r.Uint32()>>1)
	}
	for _, p := range parts {
		want := strconv.FormatFloat(float64(p)/(1<<31), 'f', 11, 64)
		if got := string(share(nil, p)); got != want {
			t.Fatalf("%d parts are %s, want %s", p, got, want)
		}
	}
}

// TestAddresses: what is a test, what is none, and what the programs print otherwise.
func TestAddresses(t *testing.T) {
	one4, all4, none4 := []byte{10, 1, 2, 3}, []byte{255, 255, 255, 255}, []byte{0, 0, 0, 0}
	ones := make([]byte, 16)
	for i := range ones {
		ones[i] = 255
	}
	half := append([]byte{255, 255, 255, 255, 255, 255, 255, 254}, make([]byte, 8)...)
	doc := append([]byte{0x20, 1, 0xd, 0xb8}, make([]byte, 12)...)
	for _, c := range []struct {
		addr, mask []byte
		invert     bool
		want       string
		ok         bool
	}{
		{one4, all4, false, " -s 10.1.2.3/32", true},
		{one4, []byte{255, 255, 224, 0}, true, " ! -s 10.1.2.3/19", true},
		{none4, none4, false, "", true},
		{none4, none4, true, "", false},
		{one4, none4, false, "", false},
		{one4, []byte{255, 0, 255, 0}, false, "", false},
		{one4, []byte{0, 255, 0, 0}, false, "", false},
		{doc, half, false, " -s 2001:db8::/63", true},
		{doc, ones, true, " ! -s 2001:db8::/128", true},
		{append(make([]byte, 12), 192, 0, 2, 1), ones, false, "", false},
		{append(make([]byte, 15), 1), ones, false, " -s ::1/128", true},
		{doc, append([]byte{255, 255, 255, 255, 0, 0, 0, 0, 1}, make([]byte, 7)...), false, "", false},
		{doc, all4, false, "", false},
		{nil, nil, false, "", false},
	} {
		got, ok := AppendAddress(nil, 's', Address{c.addr, c.mask, c.invert})
		if string(got) != c.want || ok != c.ok {
			t.Errorf("%v/%v (inverted: %v) gives %q, %v, want %q, %v", c.addr, c.mask, c.invert, got, ok, c.want, c.ok)
		}
	}
}

// FuzzAppend: no bytes make the decoders read past their end, grow the buffer when they
// say no, or put a line feed into a line.
func FuzzAppend(f *testing.F) {
	names := []string{"comment", "tcp", "udp", "sctp", "mark", "statistic", "recent", "addrtype", "conntrack", "cluster", "nfacct", "DNAT", "MARK", "MASQUERADE", "REJECT", "", "string"}
	sizes := []int{256, 12, 12, 296, 16, 24, 232, 8, 168, 16, 40, 24, 8, 40, 8, 4, 0}
	for i, size := range sizes {
		for revision := range uint8(4) {
			info := make([]byte, size)
			for j := range info {
				info[j] = byte(j%2) * byte(i)
			}
			f.Add(uint8(i), revision, info)
		}
	}
	f.Fuzz(func(t *testing.T, which, revision uint8, info []byte) {
		name := names[int(which)%len(names)]
		for _, family := range []Family{IPv4, IPv6} {
			for _, decode := range []func([]byte, *Extension) ([]byte, bool){AppendMatch, AppendTarget} {
				got, ok := decode([]byte("-A X"), &Extension{family, name, revision, info})
				if !ok && string(got) != "-A X" {
					t.Errorf("%s, revision %d: refused, and yet appended %q", name, revision, got)
				}
				for _, c := range got {
					if c < ' ' {
						t.Errorf("%s, revision %d: a control character in %q", name, revision, got)
					}
				}
			}
		}
	})
}

// TestUnknownIsRefused: a bit that is not known, a size or a revision make the whole
// unknown, whatever else is there.
func TestUnknownIsRefused(t *testing.T) {
	put := func(size, at int, value uint32) []byte {
		b := make([]byte, size)
		binary.NativeEndian.PutUint32(b[at:], value)
		return b
	}
	comment := append([]byte("two words"), make([]byte, 247)...)
	if got, ok := AppendMatch(nil, &Extension{IPv4, "comment", 0, comment}); !ok || string(got) != ` -m comment --comment "two words"` {
		t.Fatalf("a plain comment is %q, %v", got, ok)
	}
	for name, c := range map[string]struct {
		match    string
		revision uint8
		info     []byte
	}{
		"revision of comment":  {"comment", 1, comment},
		"size of comment":      {"comment", 0, comment[:255]},
		"comment without end":  {"comment", 0, make([]byte, 256)},
		"line feed in comment": {"comment", 0, append([]byte("a\nb"), make([]byte, 253)...)},
		"option of tcp":        {"tcp", 0, put(16, 8, 1)},
		"flags of statistic":   {"statistic", 0, put(24, 0, 2<<16)},
		"mode of statistic":    {"statistic", 0, put(24, 0, 1)},
		"parts of statistic":   {"statistic", 0, put(24, 4, 1<<31+1)},
		"limit of addrtype":    {"addrtype", 1, put(8, 4, 4)},
		"type of addrtype":     {"addrtype", 1, put(8, 0, 1<<12)},
		"proto of conntrack":   {"conntrack", 3, put(168, 144, 3<<16)},
		"flags of cluster":     {"cluster", 0, put(16, 12, 2)},
		"verb of recent":       {"recent", 1, append(append(make([]byte, 8), 3, 0, 'x'), make([]byte, 221)...)},
	} {
		if got, ok := AppendMatch(nil, &Extension{IPv4, c.match, c.revision, c.info}); ok || len(got) > 0 {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
	for name, c := range map[string]struct {
		target   string
		revision uint8
		info     []byte
	}{
		"flags of DNAT":       {"DNAT", 2, put(48, 0, 1|1<<5)},
		"range of DNAT":       {"DNAT", 2, append(put(20, 0, 1), append([]byte{1}, make([]byte, 27)...)...)},
		"flags of MASQUERADE": {"MASQUERADE", 0, put(24, 4, 2)},
		"answer of REJECT":    {"REJECT", 0, put(8, 0, 4)},
		"a later answer":      {"REJECT", 0, put(8, 0, 9)},
	} {
		if got, ok := AppendTarget(nil, &Extension{IPv4, c.target, c.revision, c.info}); ok || len(got) > 0 {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}
