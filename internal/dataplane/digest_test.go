package dataplane

import "testing"

// TestDigest: a digest stands for the value that it was made of, in whatever pieces, and for no other.
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
