package iptables

import (
	"maps"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// TestRemember: whatever one reading took from memory and found itself, the next one has all of that, and nothing else. What
// began earlier and ends later, or cannot say when it began, changes nothing.
func TestRemember(t *testing.T) {
	const first, last = 7, 20
	for _, c := range []struct {
		name string
		pass
		want      []string // chains with rules; found by the second reading: with a star
		wantEmpty []string
	}{
		{"nothing was written", pass{last, []string{"A", "B", "E", "F"}, nil, nil, "*"}, []string{"A", "B"}, []string{"E", "F"}},
		{"one was written", pass{last, []string{"B", "E", "F"}, []string{"A"}, nil, "*"}, []string{"A*", "B"}, []string{"E", "F"}},
		{"all were", pass{last, nil, []string{"A", "B"}, []string{"E", "F"}, "*"}, []string{"A*", "B*"}, []string{"E", "F"}},
		{"one went", pass{last, []string{"A", "E", "F"}, nil, nil, "*"}, []string{"A"}, []string{"E", "F"}},
		{"an empty one went", pass{last, []string{"A", "B", "F"}, nil, nil, "*"}, []string{"A", "B"}, []string{"F"}},
		{"one came", pass{last, []string{"A", "B", "E", "F"}, []string{"C"}, nil, "*"}, []string{"A", "B", "C*"}, []string{"E", "F"}},
		{"an empty one came", pass{last, []string{"A", "B", "E", "F"}, nil, []string{"G"}, "*"}, []string{"A", "B"}, []string{"E", "F", "G"}},
		{"one for another", pass{last, []string{"A", "E", "F"}, []string{"C"}, nil, "*"}, []string{"A", "C*"}, []string{"E", "F"}},
		{"one was emptied", pass{last, []string{"A", "E", "F"}, nil, []string{"B"}, "*"}, []string{"A"}, []string{"B", "E", "F"}},
		{"one was filled", pass{last, []string{"A", "B", "F"}, []string{"E"}, nil, "*"}, []string{"A", "B", "E*"}, []string{"F"}},
		{"all went", pass{last, nil, nil, nil, "*"}, nil, nil},
		{"it began earlier", pass{first - 1, nil, []string{"A"}, nil, "*"}, []string{"A", "B"}, []string{"E", "F"}},
		{"nobody knows when", pass{0, nil, []string{"A"}, nil, "*"}, []string{"A", "B"}, []string{"E", "F"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &Driver{}
			pass{first, nil, []string{"A", "B"}, []string{"E", "F"}, ""}.reads(t, d)
			c.reads(t, d)
			now := d.memory.tables[chainRef{family: model.IPv4, table: nat}.ft()]
			if want := max(c.began, first); now.began != want {
				t.Errorf("it began at %d, want %d", now.began, want)
			}
			var got []string
			for chain, one := range now.found {
				got = append(got, one.digest)
				if one.chain() != chain {
					t.Errorf("%s is under %s", one.chain(), chain)
				}
			}
			slices.Sort(got)
			if empty := slices.Sorted(maps.Keys(now.empty)); !slices.Equal(got, c.want) || !slices.Equal(empty, c.wantEmpty) {
				t.Errorf("%q and empty %q, want %q and %q", got, empty, c.want, c.wantEmpty)
			}
		})
	}
}

// pass is one reading of table nat. What it finds has its name and the star for its digest.
type pass struct {
	began          iptables.Mark
	recalls        []string // of A and B, which have rules, and E and F, which have none
	finds, empties []string
	star           string
}

func (p pass) reads(t *testing.T, d *Driver) {
	t.Helper()
	l := newLoader(scan{digests: true}, model.IPv4, nat)
	_, same := d.recalled(l)
	for _, chain := range p.recalls {
		if !same(chain) {
			t.Errorf("%s is not remembered", chain)
		}
	}
	if same("Z") {
		t.Error("what nobody has seen is remembered")
	}
	if all := len(l.found) + len(l.declared); all != len(p.recalls) {
		t.Errorf("%d chains were taken from memory, want %d", all, len(p.recalls))
	}
	for _, chain := range p.finds {
		l.found = append(l.found, &seen{id: chainRef{table: nat, chain: chain}.id(), digest: chain + p.star})
	}
	for _, chain := range p.empties {
		l.declared[chain] = struct{}{}
	}
	l.mark = p.began
	d.remember(l)
}

// TestRememberNothing of a reading that cannot say when it began: nobody could tell what was written since.
func TestRememberNothing(t *testing.T) {
	d := &Driver{}
	pass{0, nil, []string{"A"}, []string{"E"}, ""}.reads(t, d)
	_, same := d.recalled(newLoader(scan{digests: true}, model.IPv4, nat))
	if same("A") || same("E") {
		t.Error("it is remembered")
	}
}
