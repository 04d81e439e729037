package iptables

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fake is a Kernel in memory. It rejects what the kernel rejects: a jump to a
// missing chain, the deletion of a chain that is in use or missing, the
// deletion of a missing rule, an address of the other family. It does
// not parse matches. It is safe for concurrent use.
type Fake struct {
	mu     sync.Mutex
	gen    uint32
	tables map[fakeTable]fakeChains
}

type fakeTable struct {
	f     Family
	table string
}

// fakeChains are the rules of each chain, without "-A CHAIN ".
type fakeChains map[string][]string

var _ Kernel = (*Fake)(nil)

// NewFake returns a Fake without rules.
func NewFake() *Fake { return &Fake{gen: 1, tables: map[fakeTable]fakeChains{}} }

// Backend implements Kernel.
func (k *Fake) Backend() Backend { return NFT }

func builtins(table string) []string {
	switch table {
	case "nat":
		return []string{"INPUT", "OUTPUT", "POSTROUTING", "PREROUTING"}
	case "filter":
		return []string{"FORWARD", "INPUT", "OUTPUT"}
	}
	return []string{"FORWARD", "INPUT", "OUTPUT", "POSTROUTING", "PREROUTING"}
}

func (k *Fake) chains(f Family, table string) fakeChains {
	c := k.tables[fakeTable{f, table}]
	if c == nil {
		c = fakeChains{}
		for _, name := range builtins(table) {
			c[name] = nil
		}
	}
	return c
}

// Restore implements Kernel: each table is one transaction.
func (k *Fake) Restore(_ context.Context, r Restore) (Stamp, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.Expect != (Stamp{}) && r.Expect.Generation != k.gen {
		return Stamp{}, ErrMoved
	}
	var table string
	var work fakeChains
	lines := strings.Split(string(r.Input), "\n")
	for i, l := range lines {
		refuse := func(why string) (Stamp, error) {
			e := explain("fake-restore", 1, why+"\nError occurred at line: "+itoa(i+1), r.Input)
			return Stamp{Generation: k.gen}, e
		}
		switch {
		case l == "":
		case strings.HasPrefix(l, "*"):
			table = l[1:]
			work = fakeChains{}
			for name, rules := range k.chains(r.Family, table) {
				work[name] = slices.Clone(rules)
			}
		case l == "COMMIT":
			if why := work.dangling(); why != "" {
				return refuse(why)
			}
			k.tables[fakeTable{r.Family, table}] = work
			k.gen = nextGeneration(k.gen, 1)
		default:
			if why := work.apply(l, r.Family); why != "" {
				return refuse(why)
			}
		}
	}
	return Stamp{Generation: k.gen}, nil
}

// apply executes one line; it returns the reason if it rejects the line.
func (c fakeChains) apply(l string, f Family) string {
	if name, ok := strings.CutPrefix(l, ":"); ok {
		name, _, _ = strings.Cut(name, " ")
		c[name] = nil
		return ""
	}
	verb, rest, _ := strings.Cut(l, " ")
	name, rule, _ := strings.Cut(rest, " ")
	rules, there := c[name]
	if !there {
		return "no chain " + name
	}
	if to, ok := after(rule, "--to-destination "); ok && strings.Contains(to, "[") != (f == IPv6) {
		return "Bad IP address " + to
	}
	switch verb {
	case "-A":
		c[name] = append(rules, rule)
	case "-I":
		c[name] = append([]string{rule}, rules...)
	case "-D":
		i := slices.Index(rules, rule)
		if i < 0 {
			return "no such rule"
		}
		c[name] = slices.Delete(rules, i, i+1)
	case "-X":
		if len(rules) > 0 {
			return "chain is not empty"
		}
		delete(c, name)
	default:
		return "bad line"
	}
	return ""
}

// dangling returns an error text if a rule jumps to a missing chain.
func (c fakeChains) dangling() string {
	for _, rules := range c {
		for _, r := range rules {
			for _, flag := range []string{"-j ", "-g "} {
				to, ok := after(r, flag)
				if _, there := c[to]; ok && !there && strings.HasPrefix(to, "KUBE-") {
					return "Chain '" + to + "' does not exist"
				}
			}
		}
	}
	return ""
}

// after returns the word after a flag.
func after(rule, flag string) (string, bool) {
	i := strings.LastIndex(rule, flag)
	if i < 0 {
		return "", false
	}
	w, _, _ := strings.Cut(rule[i+len(flag):], " ")
	return w, true
}

// SaveAll implements Kernel.
func (k *Fake) SaveAll(ctx context.Context, f Family, tables []string, emit func(string, []byte) error) error {
	return saveEach(tables, emit, func(t string, line func([]byte) error) error { return k.Save(ctx, f, t, line) })
}

// Read implements Kernel. It returns a superset of the requested lines.
func (k *Fake) Read(ctx context.Context, r Reading, emit func([]byte) error) error {
	return k.Save(ctx, r.Family, r.Table, emit)
}

// Save implements Kernel.
func (k *Fake) Save(ctx context.Context, f Family, table string, emit func([]byte) error) error {
	k.mu.Lock()
	c := maps.Clone(k.tables[fakeTable{f, table}])
	k.mu.Unlock()
	names := slices.Sorted(maps.Keys(c))
	for _, name := range names {
		if err := emit([]byte(":" + name + " - [0:0]")); err != nil {
			return err
		}
	}
	for _, name := range names {
		for _, r := range c[name] {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := emit([]byte("-A " + name + " " + r)); err != nil {
				return err
			}
		}
	}
	return nil
}

// List implements Kernel.
func (k *Fake) List(_ context.Context, f Family, table, chain string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rules, known := k.chains(f, table)[chain]
	if !known {
		return nil, nil
	}
	out := make([]string, 0, len(rules))
	for _, r := range rules {
		out = append(out, "-A "+chain+" "+r)
	}
	return out, nil
}

// Stamp implements Kernel.
func (k *Fake) Stamp(context.Context) (Stamp, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Stamp{Generation: k.gen}, nil
}

// Watch implements Kernel.
func (k *Fake) Watch(ctx context.Context, seen func(Stamp)) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		s, err := k.Stamp(ctx)
		if err != nil {
			return err
		}
		seen(s)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
