package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/internal/model"
)

// dice throws the choices of a random world: from a seed, or from a fuzzer's bytes.
type dice func(n int) int

func seeded(seed uint64) dice { return rand.New(rand.NewPCG(seed, 42)).IntN }

func bytesDice(b []byte) dice {
	i := 0
	return func(n int) int {
		if i >= len(b) {
			return 0
		}
		i++
		return int(b[i-1]) % n
	}
}

func (d dice) yes(inN int) bool { return d(inN) == 0 }

// mutate makes the next world from one: a few things come, change or go.
func (d dice) mutate(from *world) *world {
	w := &world{services: map[string]*model.Service{}, slices: map[string]*model.Slice{}, zone: from.zone, nodeIP: from.nodeIP, cidr: from.cidr}
	for k, v := range from.services {
		w.services[k] = v
	}
	for k, v := range from.slices {
		w.slices[k] = v
	}
	for range 1 + d(3) {
		switch d(9) {
		case 0:
			delete(w.services, fmt.Sprintf("s%d", 1+d(4)))
		case 1, 2, 3:
			name := fmt.Sprintf("s%d", 1+d(4))
			w.services[name] = d.service(name)
		case 4:
			delete(w.slices, fmt.Sprintf("e%d", d(6)))
		case 5, 6:
			name := fmt.Sprintf("e%d", d(6))
			w.slices[name] = d.slice(name)
		case 7:
			w.zone, w.nodeIP = string(rune('a'+d(3))), fmt.Sprintf("192.168.1.%d", 1+d(2))
		case 8:
			w.cidr = []string{"10.96.0.0/12", "1.2.3.2/31"}[d(2)]
		}
	}
	return w
}

func (d dice) service(name string) *model.Service {
	s := model.Service{Key: named(name), Created: int64(d(3)), Proxied: !d.yes(8),
		ClusterIPs: addrs("10.96.1."+name[1:], "fd00::"+name[1:])[:1+d(2)],
		Ports:      []model.ServicePort{{Name: "p", Protocol: model.TCP, Port: 80}}}
	if d.yes(2) {
		s.Ports = append(s.Ports, model.ServicePort{Name: "q", Protocol: model.UDP, Port: 53, NodePort: uint16(30000 + d(2))})
	}
	if d.yes(2) {
		s.ExternalIPs = addrs([]string{"1.2.3.0", "1.2.3.1", "1.2.3.2", "192.168.1.1", "169.254.1.1"}[d(5)])
	}
	if d.yes(2) {
		s.LoadBalancerIPs = addrs(fmt.Sprintf("1.2.3.%d", d(3)))
	}
	s.ExternalLocal, s.InternalLocal = d.yes(3), d.yes(3)
	if s.ExternalLocal {
		s.HealthCheckNodePort = 32000
	}
	if d.yes(3) {
		s.SourceRanges, s.SourceGuarded = prefixes([]string{"192.168.1.1/32", "192.168.0.0/16", "0.0.0.0/0", "fd00::/8"}[d(4)]), true
	}
	s.AffinityTimeout = time.Duration(d(2)) * time.Hour
	return &s
}

func (d dice) slice(name string) *model.Slice {
	sl := &model.Slice{Key: model.SliceKey{Namespace: "default", Name: name}, Family: model.IPv4,
		Service: named(fmt.Sprintf("s%d", 1+d(5))), Headless: d.yes(10), // s5 never is a Service
		Ports: []model.SlicePort{{Name: "p", Protocol: model.TCP, Port: uint16(8080 + d(2))}, {Name: "q", Protocol: model.UDP, Port: 53}}}
	format := "10.1.0.%d@n%d %s%s"
	if d.yes(3) {
		sl.Family, format = model.IPv6, "fd01::%d@n%d %s%s"
	}
	for range d(5) {
		state := []string{"ready", "ready", "unready", "draining", "dying", "published"}[d(6)]
		hint := []string{"", " hz:a", " hz:b", " hn:n1 hz:c", " hn:n2"}[d(5)]
		sl.Endpoints = append(sl.Endpoints, endpoint(fmt.Sprintf(format, 1+d(4), 1+d(2), state, hint)))
	}
	return sl
}

// expansions are the ways in which the same history may reach us (after Felix's
// calculation graph tests): each gives the batches that lead through the worlds.
var expansions = map[string]func(d dice, worlds []*world) [][]model.Event{
	"each world a batch": func(_ dice, ws []*world) (out [][]model.Event) {
		for i, w := range ws {
			out = append(out, batch(w, whats(ws[:i+1]...)))
		}
		return out
	},
	"keys reversed": func(_ dice, ws []*world) (out [][]model.Event) {
		for i, w := range ws {
			keys := whats(ws[:i+1]...)
			slices.Reverse(keys)
			out = append(out, batch(w, keys))
		}
		return out
	},
	"each key a batch, shuffled, some twice": func(d dice, ws []*world) (out [][]model.Event) {
		for i, w := range ws {
			keys := whats(ws[:i+1]...)
			for j := range keys {
				k := j + d(len(keys)-j)
				keys[j], keys[k] = keys[k], keys[j]
				out = append(out, batch(w, keys[j:j+1]))
				if d.yes(3) {
					out = append(out, batch(w, keys[:j+1]))
				}
			}
		}
		return out
	},
	"squashed": func(_ dice, ws []*world) [][]model.Event {
		return [][]model.Event{batch(ws[len(ws)-1], whats(ws...))}
	},
	"all worlds in one batch": func(_ dice, ws []*world) [][]model.Event {
		var all []model.Event
		for i, w := range ws {
			all = append(all, batch(w, whats(ws[:i+1]...))...)
		}
		return [][]model.Event{all}
	},
	"there and back, then on": func(_ dice, ws []*world) (out [][]model.Event) {
		for i, w := range ws {
			keys := whats(ws[:i+1]...)
			out = append(out, batch(w, keys))
			if i > 0 {
				out = append(out, batch(ws[i-1], keys), batch(w, keys))
			}
		}
		return out
	},
	"everything gone in between": func(_ dice, ws []*world) (out [][]model.Event) {
		empty := &world{zone: "z", nodeIP: "192.168.1.9"}
		for i, w := range ws {
			keys := whats(ws[:i+1]...)
			out = append(out, batch(empty, keys), batch(w, keys))
		}
		return out
	},
}

func batch(w *world, keys []string) (out []model.Event) {
	for _, k := range keys {
		out = append(out, w.event(k))
	}
	return out
}

// checkHistory: however the history arrives, the decisions are those of a
// process that has seen nothing but its end; and when everything goes, nothing is left.
func checkHistory(t *testing.T, d dice, n int) {
	t.Helper()
	worlds := []*world{d.mutate(&world{zone: "a", nodeIP: "192.168.1.1"})}
	for len(worlds) < n {
		worlds = append(worlds, d.mutate(worlds[len(worlds)-1]))
	}
	want := worlds[n-1].scratch()
	for name, expand := range expansions {
		f := newFolder()
		for _, events := range expand(d, worlds) {
			f.apply(events)
		}
		if diff := cmp.Diff(want, f.String()); diff != "" {
			t.Fatalf("%s: decisions (-from scratch +from history):\n%s", name, diff)
		}
		f.apply(batch(&world{nodeIP: "192.168.1.9"}, whats(worlds...)))
		if got := f.String(); got != "" {
			t.Fatalf("%s: left behind:\n%s", name, got)
		}
		if sv, sl, ep := f.st.Counts(); sv+sl+ep != 0 {
			t.Fatalf("%s: %d Services, %d slices, %d endpoints counted in an empty state", name, sv, sl, ep)
		}
		for k := range f.st.Keys() {
			t.Fatalf("%s: key %s is left in an empty state", name, k)
		}
	}
}

func TestHistoryDoesNotMatter(t *testing.T) {
	histories := uint64(400)
	if testing.Short() {
		histories = 100
	}
	for seed := range histories {
		checkHistory(t, seeded(seed), 2+int(seed%9))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzHistory(f *testing.F) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 300)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			t.Skip("longer histories say no more")
		}
		checkHistory(t, bytesDice(b), 2+len(b)/60%12)
	})
}
