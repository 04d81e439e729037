package dataplane

import (
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
)

// TestDigest: a digest is equal to the value that it was computed from, in any pieces, and to no other value.
func TestDigest(t *testing.T) {
	d := NewDigester()
	for range 2 { // the second time after a Reset
		d.Reset()
		d.Add([]byte("a rule\n"))
		d.Add([]byte("and another"))
		if d.Sum64() != Sum64("a rule\nand another") {
			t.Error("in pieces it is another digest")
		}
	}
	for _, c := range []struct {
		value, found string
		same         bool
	}{
		{"a rule\nand another", d.Digest(), true},
		{"a rule\nand some other", d.Digest(), false},
		{"", d.Digest(), false},
		{"", NewDigester().Digest(), false}, // "" is absent, not an empty value
		{"a rule", "a rule", true},
		{"a rule", "another", false},
		{"a rule", "", false},
	} {
		if Same(c.value, c.found) != c.same {
			t.Errorf("%q and %q: same is not %t", c.value, c.found, c.same)
		}
	}
}

// TestObjectSum: the checksum depends on each part of an object, and a value and its digest have the same checksum.
func TestObjectSum(t *testing.T) {
	d := NewDigester()
	d.Add([]byte("a rule"))
	key := Key{Kind: 2, Family: model.IPv4, ID: "chain"}
	sum := ObjectSum(key, "a rule")
	if by := ObjectSum(key, d.Digest()); by != sum {
		t.Errorf("by the value %x, by its digest %x", sum, by)
	}
	for _, other := range []Object{
		{Key{3, model.IPv4, "chain"}, "a rule"}, {Key{2, model.IPv6, "chain"}, "a rule"}, {Key{2, model.IPv4, "chai"}, "a rule"},
		{key, "a rul"}, {key, ""}, {Key{2, model.IPv4, "a rule"}, "chain"},
	} {
		if ObjectSum(other.Key, other.Value) == sum {
			t.Errorf("%s with %q adds the same", other.Key, other.Value)
		}
	}
	if halves := HashValue(key.Kind, key.Family, "a rule").With(HashName([]byte(key.ID))); halves != sum {
		t.Errorf("in one %x, of its halves %x", sum, halves)
	}
}

// TestObjectSumsOfMany: objects that agree in one half, or have exchanged halves, have different sums.
func TestObjectSumsOfMany(t *testing.T) {
	id := func(i int) Key { return Key{Kind: Kind(i % 3), Family: model.IPv4, ID: strconv.Itoa(i / 3)} }
	value := func(i int) string { return strconv.Itoa(i) }
	const many = 300
	seen := map[uint64]bool{}
	add := func(what string, sum uint64) {
		t.Helper()
		if seen[sum] {
			t.Fatalf("%s: the same sum as before", what)
		}
		seen[sum] = true
	}
	for i := range many {
		for j := range many {
			add("one object", ObjectSum(id(i), value(j)))
		}
	}
	for i := range many {
		for j := range i { // two objects with exchanged halves
			add("as they are", ObjectSum(id(i), value(i))+ObjectSum(id(j), value(j)))
			add("exchanged", ObjectSum(id(i), value(j))+ObjectSum(id(j), value(i)))
		}
	}
}

// TestPoolSum: the checksum depends on the elements of a pool and their number, not on their slots.
func TestPoolSum(t *testing.T) {
	key := Key{Kind: 2, Family: model.IPv4, ID: "pool"}
	sum := PoolSum(key, "aabbcc", 2)
	for _, same := range []string{"ccaabb", "aabb\x00\x00cc", "\x00\x00\x00\x00bbaacc"} {
		if PoolSum(key, same, 2) != sum {
			t.Errorf("%q adds something else", same)
		}
	}
	for _, other := range []string{"", "aabb", "aabbc", "aabbcb", "aabbcccc", "aaaabbcc", "ababcc", "\x00abbcc"} {
		if PoolSum(key, other, 2) == sum {
			t.Errorf("%q adds the same", other)
		}
	}
	if a, b := PoolSum(key, "", 2), PoolSum(Key{Kind: 2, Family: model.IPv4, ID: "poo"}, "", 2); a == 0 || a == b {
		t.Errorf("empty pools add %x and %x", a, b)
	}
	for _, other := range []Key{{3, model.IPv4, "pool"}, {2, model.IPv6, "pool"}, {2, model.IPv4, "poo"}} {
		if PoolSum(other, "aabbcc", 2) == sum {
			t.Errorf("%s adds the same", other)
		}
	}
}
