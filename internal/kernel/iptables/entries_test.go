package iptables

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// table builds a table in the kernel's form.
type table struct {
	layout layout
	rules  []byte
}

// add appends an entry with a target and returns its offset. match is all of its matches.
func (b *table) add(target string, info, match []byte) uint32 {
	at := len(b.rules)
	b.rules = append(b.rules, make([]byte, b.layout.size)...)
	b.rules = append(b.rules, match...)
	head := make([]byte, extensionHead)
	copy(head[extensionName:], target)
	b.rules = append(append(b.rules, head...), info...)
	for len(b.rules)%8 != 0 {
		b.rules = append(b.rules, 0)
	}
	binary.NativeEndian.PutUint16(b.rules[at+b.layout.offsets:], uint16(b.layout.size+len(match)))
	binary.NativeEndian.PutUint16(b.rules[at+b.layout.offsets+2:], uint16(len(b.rules)-at))
	return uint32(at)
}

func (b *table) verdict(v int32, match ...byte) uint32 {
	return b.add("", binary.NativeEndian.AppendUint32(nil, uint32(v)), match)
}

func (b *table) chain(name string) {
	b.add("ERROR", append([]byte(name), make([]byte, 30-len(name))...), nil)
}

// comment is the match of that name.
func comment(text string) []byte {
	m := make([]byte, extensionHead+256)
	binary.NativeEndian.PutUint16(m, uint16(len(m)))
	copy(m[extensionName:], "comment")
	copy(m[extensionHead:], text)
	return m
}

const policy = -5 // RETURN

// sample is a table with one hook, an owned chain and a foreign one.
type sample struct {
	*table
	head   tableHead
	onward uint32 // the rule of the owned chain without a target
}

func small(f Family) *sample {
	s := &sample{table: &table{layout: layoutOf(f)}, head: tableHead{hooks: 1 << 3}}
	jump := s.verdict(0, comment("to us")...)
	away := s.verdict(0)
	s.verdict(-2)
	s.chain("KUBE-X")
	ours := s.verdict(-1)
	s.onward = s.verdict(0, comment("goes on")...)
	end := s.verdict(policy)
	s.chain("OTHER")
	theirs := s.add("LOG", []byte{1, 2, 3, 4}, nil)
	s.verdict(policy)
	s.chain("ERROR")
	for from, to := range map[uint32]uint32{jump: ours, away: theirs, s.onward: end} {
		n, _ := (&entries{layout: s.layout, rules: s.rules}).at(from)
		binary.NativeEndian.PutUint32(n.bytes[n.target+extensionHead:], to)
	}
	return s
}

// cut takes the last entry away, which ends the table.
func (s *sample) cut() { s.rules = s.rules[:len(s.rules)-s.layout.size-64] }

func (s *sample) printed() (lines []string, err error) {
	e := entries{layout: s.layout, rules: s.rules, seed: maphash.MakeSeed()}
	if !e.findChains(&s.head, func(name string) bool { return strings.HasPrefix(name, "KUBE-") }) {
		return nil, ErrUnreadable
	}
	err = e.print(context.Background(), Reading{}, func(line []byte) error {
		lines = append(lines, string(line))
		return nil
	})
	return lines, err
}

// TestEntries: the printed lines of a table, and that an unknown target in a foreign
// chain has no effect.
func TestEntries(t *testing.T) {
	for _, f := range []Family{IPv4, IPv6} {
		lines, err := small(f).printed()
		want := []string{":KUBE-X - [0:0]", `-A OUTPUT -m comment --comment "to us" -j KUBE-X`, "-A KUBE-X -j DROP", `-A KUBE-X -m comment --comment "goes on"`}
		if err != nil || !slices.Equal(lines, want) {
			t.Errorf("family %d: %q, %v", f, lines, err)
		}
	}
}

// TestOddTables: a table that is not laid out as tables are is not guessed at.
func TestOddTables(t *testing.T) {
	for name, change := range map[string]func(s *sample){
		"cut short":                 func(s *sample) { s.rules = s.rules[:len(s.rules)-8] },
		"empty":                     func(s *sample) { s.rules = nil },
		"no end":                    func(s *sample) { s.cut() },
		"a hook inside an entry":    func(s *sample) { s.head.begins[3] = 8 },
		"a hook behind the end":     func(s *sample) { s.head.begins[3] = 1 << 30 },
		"an entry without a size":   func(s *sample) { clear(s.rules[s.layout.offsets:][:4]) },
		"a target behind the entry": func(s *sample) { s.rules[s.layout.offsets+1] = 0x7f },
		"an entry of an odd length": func(s *sample) { s.rules[s.layout.offsets+2]++ },
		"a match longer than all":   func(s *sample) { s.rules[s.layout.size+1] = 0x7f },
		"a match without a size":    func(s *sample) { clear(s.rules[s.layout.size:][:2]) },
		"an unknown flag":           func(s *sample) { s.rules[s.layout.flags] = 0x80 },
		"an unknown inversion":      func(s *sample) { s.rules[s.layout.inverted] = 4 },
		"an inverted test of none":  func(s *sample) { s.rules[s.layout.inverted] = notFrom },
		"a goto that goes on":       func(s *sample) { s.rules[int(s.onward)+s.layout.flags] = s.layout.goTo },
		"an interface half masked":  func(s *sample) { s.rules[s.layout.interfaces+33] = 0xff },
		"a chain without a policy":  func(s *sample) { s.cut(); s.chain("KUBE-Y"); s.chain("ERROR") },
		"a line feed in a name":     func(s *sample) { s.cut(); s.chain("KUBE-\n-A KUBE-X"); s.verdict(policy); s.chain("ERROR") },
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range []Family{IPv4, IPv6} {
				s := small(f)
				change(s)
				if lines, err := s.printed(); !errors.Is(err, ErrUnreadable) {
					t.Errorf("family %d: %q, %v", f, lines, err)
				}
			}
		})
	}
}

// replaced is a kernel whose table is another one at each read, up to the last.
type replaced struct {
	heads []tableHead
	looks int
}

func (r *replaced) ask(option uintptr, buf []byte) error {
	now := &r.heads[min(r.looks, len(r.heads)-1)]
	if option == getInfo {
		r.looks++
		copy(buf, unsafe.Slice((*byte)(unsafe.Pointer(now)), unsafe.Sizeof(*now)))
		return nil
	}
	if u32(buf[32:]) != now.size {
		return unix.EAGAIN
	}
	buf[entriesHead] = byte(now.entries)
	return nil
}

// TestReplacedTables: rules and head are of one table, of whatever sizes those are that
// come and go; one that never stands still is given up.
func TestReplacedTables(t *testing.T) {
	table := func(entries, size, begin uint32) tableHead {
		return tableHead{hooks: 1, entries: entries, size: size, begins: [5]uint32{begin}}
	}
	for name, heads := range map[string][]tableHead{
		"at rest":               {table(1, 8, 0)},
		"another size":          {table(1, 8, 0), table(2, 16, 0)},
		"another place":         {table(1, 8, 0), table(2, 8, 8)},
		"one after the other":   {table(1, 8, 0), table(2, 16, 0), table(3, 16, 8), table(4, 24, 0), table(5, 8, 0)},
		"and back to the first": {table(1, 8, 0), table(2, 16, 0), table(1, 8, 0)},
	} {
		k := &replaced{heads: heads}
		head, rules, release, err := xtable{"nat", k.ask, &turn{}}.rules()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if last := heads[len(heads)-1]; head != last || len(rules) != int(last.size) || rules[0] != byte(last.entries) {
			t.Errorf("%s: %d rules of the table, a head of %d entries, want %d", name, rules[0], head.entries, last.entries)
		}
		release()
	}
	never := &replaced{}
	for i := range uint32(40) {
		never.heads = append(never.heads, table(i, 8+i%2*8, 0))
	}
	if _, _, _, err := (xtable{"nat", never.ask, &turn{}}).rules(); !errors.Is(err, errReplaced) {
		t.Errorf("a table that is always replaced: %v", err)
	}
}

// FuzzEntries: no table makes the reader read past its end, go on for ever, or put a line
// feed into a line.
func FuzzEntries(f *testing.F) {
	for _, family := range []Family{IPv4, IPv6} {
		f.Add(family == IPv6, uint32(0), small(family).rules)
	}
	f.Fuzz(func(t *testing.T, six bool, begin uint32, rules []byte) {
		family := IPv4
		if six {
			family = IPv6
		}
		s := sample{table: &table{layoutOf(family), rules}, head: tableHead{hooks: 1 << 3, begins: [5]uint32{3: begin}}}
		lines, _ := s.printed()
		for _, l := range lines {
			if strings.ContainsAny(l, "\n\r\x00") {
				t.Errorf("a line is %q", l)
			}
		}
	})
}
