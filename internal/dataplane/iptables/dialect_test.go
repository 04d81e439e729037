package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// printing puts an iptables-save of another release in front of the real one: the same
// rules, put into other words by sed.
func printing(t *testing.T, b iptables.Backend, words string) {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"iptables", "ip6tables"} {
		name := program + "-" + string(b) + "-save"
		found, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("SKIPPED, not run: %v", err) // this backend is not installed; scripts/deps.sh installs both
		}
		script := fmt.Sprintf("#!/bin/sh\n%s \"$@\" | sed -E '%s'\n", found, words)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestOtherPrinting: releases of iptables that print other blanks, or options in another
// order. What they print is taken for what was written, so that nothing drifts, for the
// first agent and for the next one, in a comparison and in an audit. All is printed here:
// Read is not asked.
func TestOtherPrinting(t *testing.T) {
	for name, words := range map[string]string{
		"one blank less":       `s/--nfacct-name  /--nfacct-name /`,
		"a blank more":         `s/ --dport / --dport  /; s/ -j DNAT/  -j DNAT/`,
		"another order":        `s/(-m comment --comment "[^"]*") (-m (tcp|udp|sctp) --dport [0-9:]+)/\2 \1/; s/(-s [^ ]+) (-d [^ ]+)/\2 \1/`,
		"order behind a match": `s/(--name [^ ]+) (--mask [^ ]+) --rsource/--rsource \2 \1/`,
		"a negation":           `s/(-d 127.0.0.0.8) (! -i lo)/\2 \1/`,
	} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b iptables.Backend) {
				printing(t, b, words)
				ns := ownNetns(t, b)
				probed := func() *Driver {
					d := New(Params{Kernel: printer{ns.Conn}, Counters: ns.counters(t)})
					if caps, err := d.Probe(t.Context()); err != nil || len(caps.Notes) > 0 {
						t.Fatalf("probe: %+v, %v", caps, err)
					}
					return d
				}
				bed := builtOn(t, probed())
				bed.Sync(t)
				if drift := bed.Load(t); len(drift) > 0 {
					t.Errorf("%d objects drifted, among them %v", len(drift), drift[0])
				}
				d := probed()
				next := dataplanetest.NewBed(d, dataplanetest.View())
				next.WantAll(dataplanetest.Catalogue([]model.Family{model.IPv4, model.IPv6}))
				next.Want(dataplanetest.Service(0), dataplanetest.ClusterIP(model.IPv4, 0, 7))
				next.Load(t)
				if list := next.Pending(); len(list) > 0 {
					t.Errorf("a restart would write %d objects, among them %s", len(list), d.KeyString(list[0].Key))
				}
				f := &finding{chains: d.readDigests(t.Context()), writes: d.there.writes}
				if f.chains == nil {
					t.Fatal("the audit cannot read")
				}
				if d.differs(f) {
					t.Error("the audit finds a difference")
				}
			})
		})
	}
}

// printer is a Kernel whose rules only the programs read.
type printer struct{ iptables.Kernel }

func (printer) Read(context.Context, iptables.Reading, func([]byte) error) error {
	return iptables.ErrUnreadable
}

// TestUnknownPrinting: other words are an error that shows both lines, and leave nothing.
func TestUnknownPrinting(t *testing.T) {
	for name, words := range map[string]string{
		"another word":   `s/ --random-fully/ --fully-random/`,
		"a word more":    `s/ --random-fully/ --random-fully --persistent/`,
		"a word less":    `s/ --random-fully//`,
		"another value":  `s/--probability 0\.33333333349/--probability 0.333/`,
		"a rule is lost": `/ --random-fully/d`,
	} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b iptables.Backend) {
				printing(t, b, words)
				ns := ownNetns(t, b)
				_, err := New(Params{Kernel: ns.Conn}).Probe(t.Context())
				var other *MisreadError
				if !errors.As(err, &other) || !errors.Is(err, dataplane.ErrUnsupported) {
					t.Fatalf("probe says %v", err)
				}
				if text := err.Error(); !strings.Contains(text, fmt.Sprintf("wrote %q, read %q", other.Wrote, other.Read)) || other.Wrote == other.Read {
					t.Errorf("the error does not show the lines: %s", text)
				}
				if left := ns.save(t); strings.Contains(left, probeChain) {
					t.Errorf("the probe leaves\n%s", left)
				}
			})
		})
	}
}

// TestProbeKnowsEveryKind: what the driver renders for the whole catalogue, and for views
// of all sorts, is of a kind that Probe has read back.
func TestProbeKnowsEveryKind(t *testing.T) {
	d := New(Params{Kernel: iptables.NewFake()})
	d.cluster, d.counts = true, true
	for _, f := range bothFamilies {
		known := map[string]bool{}
		for tab, rules := range d.samples(f) {
			for _, r := range rules {
				known[string(byte(tab))+kindOfRule(r)] = true
			}
		}
		bed := dataplanetest.NewBed(d, dataplanetest.View())
		bed.WantAll(dataplanetest.Catalogue([]model.Family{f}))
		n := 0
		for _, op := range bed.Pending() {
			if op.Key.Family != f {
				continue
			}
			c, rule := chainOf(op.Key)
			rules := []string{rule}
			if rule == "" && op.Want != present && op.Want != emptyBody {
				rules = strings.Split(op.Want, "\n")
			}
			for _, r := range rules {
				if r == "" {
					continue
				}
				n++
				if kind := string(byte(c.table)) + kindOfRule(toProbeTarget(r)); !known[kind] {
					t.Errorf("%s, table %s: probe does not read back the like of %q", f, c.table, r)
				}
			}
		}
		if n < 100 {
			t.Errorf("only %d rules were looked at", n)
		}
	}
}

// TestOptions: a rule in pieces is the rule.
func TestOptions(t *testing.T) {
	list := options(`-s 10.0.0.0/8 ! -i lo -m comment --comment "a \"b -c" -m tcp --dport 1:2 -j X`)
	var names []string
	for i := range list {
		names = append(names, list[i].name+"="+strings.Join(list[i].values, "|"))
	}
	want := `-s=10.0.0.0/8, ! -i=lo, -m=comment, --comment="a \"b -c", -m=tcp, --dport=1:2, -j=X`
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
