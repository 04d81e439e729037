package conntrack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

// meanwhile is a table in which something happens while it is read. Like the
// kernel's it shows flows that begin behind the reader's place.
type meanwhile struct {
	*conntrack.Fake
	family  conntrack.Family // 0 = any
	happens func()
}

func (m *meanwhile) Flows(ctx context.Context, f conntrack.Filter, emit func(conntrack.Flow)) error {
	if m.happens != nil && (m.family == 0 || m.family == f.Family) {
		m.happens()
	}
	return m.Fake.Flows(ctx, f, emit)
}

// TestFlowsBegunDuringALook (P4 of the review): while the sweep at start reads the
// table, IPv6 last, an endpoint comes and gets connections. They were reset,
// although the endpoint serves, or ends and is to finish what it has.
func TestFlowsBegunDuringALook(t *testing.T) {
	const (
		old = "tcp [fd00::1]:1001 [fd96::1]:80 [fd01::1]:8080"
		new = "tcp [fd00::1]:1002 [fd96::1]:80 [fd01::2]:8080"
		one = "tcp [fd96::1]:80 [fd01::1]:8080"
		two = "tcp [fd96::1]:80 [fd01::1]:8080 [fd01::2]:8080"
		end = "tcp [fd96::1]:80 -[fd01::1]:8080 -[fd01::2]:8080"
	)
	frontends := func(text string) []model.Frontend { return []model.Frontend{frontend(text)} }
	for name, happens := range map[string]func(r *rig){
		"committed, and not told yet": func(r *rig) {
			r.Perhaps(frontends(two))
			r.table.Add(flow(new))
		},
		"committed and told": func(r *rig) {
			r.Perhaps(frontends(two))
			r.table.Add(flow(new))
			r.update(nil, two)
		},
		"and ends already": func(r *rig) {
			r.Perhaps(frontends(two))
			r.table.Add(flow(new))
			r.update(nil, two)
			r.Perhaps(frontends(end))
			r.update(nil, end)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(Params{ResetGone: true}, old)
			r.p.Table = &meanwhile{Fake: r.table, family: conntrack.IPv6, happens: func() {
				if len(r.table.All()) == 1 {
					happens(r)
				}
			}}
			r.update(nil, one, "tcp 10.96.0.1:80 10.1.0.1:8080")
			r.Sweep()
			for range 3 {
				r.turn(t.Context())
				r.left(t, old, new)
			}
			r.update(nil, "tcp [fd96::1]:80")
			r.turn(t.Context())
			r.left(t)
		})
	}
}

// TestAWordThatMayHold: what is about to be committed is not stale, and is if the
// next word on the key is another.
func TestAWordThatMayHold(t *testing.T) {
	const single = "udp 10.0.0.1:1003 10.96.0.1:5001 10.1.0.3:5001"
	r := newRig(Params{}, dns1, dns2, node1)
	r.SetNodePortAddrs([]netip.Addr{netip.MustParseAddr("192.168.1.5")})
	r.update(nil, "udp 10.96.0.1:53 10.1.0.9:5353", "udp :30053 10.1.0.9:5353")
	r.Update([]model.Frontend{rtp(5000, 5010, "10.1.0.9")}, nil)
	r.Sweep()
	r.Perhaps([]model.Frontend{frontend("udp 10.96.0.1:53 10.1.0.1:5353"), frontend("udp :30053 10.1.0.1:5353"), rtp(5000, 5010, "10.1.0.3")})
	r.turn(t.Context())
	r.left(t, dns1, node1)
	r.table.Add(flow(single))
	for range 2 { // known for longer, and by a sweep as well
		r.Sweep()
		r.turn(t.Context())
		r.left(t, dns1, node1, single)
	}
	r.update(nil, "udp 10.96.0.1:53 10.1.0.9:5353", "udp :30053 10.1.0.9:5353")
	r.Update([]model.Frontend{rtp(5000, 5010, "10.1.0.9")}, nil)
	r.turn(t.Context())
	r.left(t)
	if len(r.maybe) > 0 {
		t.Errorf("words that nothing became of are remembered: %v", r.maybe)
	}
}

// world is a kernel, an engine that writes to it, and clients.
type world struct {
	*rig
	*rand.Rand
	t       *testing.T
	keys    []string
	holds   map[string][]string // by key: where new flows go; absent: nobody answers
	left    map[string]bool     // by key: its holder has gone since the Cleaner was told
	told    map[string]bool     // by key: the Cleaner was told what the kernel holds
	addrs   map[netip.Addr]bool // NodePort addresses that the kernel has
	ours    map[string]bool     // by flow: we sent it there
	clients int
	looking bool // the Cleaner is
	writes  int  // what may be written while it is
	broken  int  // per cent of the calls to the table that fail
}

func (w *world) endpoint() string { return fmt.Sprintf("10.1.0.%d:5353", 1+w.IntN(6)) }

// write is a turn of the engine about one key: told before, written, told after.
func (w *world) write() {
	if w.IntN(8) == 0 {
		w.moveAddress()
		return
	}
	k := w.keys[w.IntN(len(w.keys))]
	gone := w.IntN(6) == 0
	var to []string
	text := k
	for range w.IntN(4) {
		if a := w.endpoint(); !slices.Contains(to, a) {
			to = append(to, a)
		}
	}
	slices.Sort(to)
	for _, a := range to {
		text += " " + a
	}
	if !gone {
		w.Perhaps([]model.Frontend{frontend(text)})
	}
	w.begin()
	outcome := w.IntN(10)
	if outcome == 0 { // refused
		w.told[k] = false
		return
	}
	if w.holds[k] = to; gone {
		delete(w.holds, k)
		w.left[k] = true
	}
	w.begin()
	w.turnNow()
	if outcome == 1 { // done, but the answer was lost
		w.told[k] = false
		return
	}
	w.tell(k)
}

// moveAddress adds or removes a NodePort address of the node. The engine
// reports it right behind the commit.
func (w *world) moveAddress() {
	a := nodePortAddrs[w.IntN(len(nodePortAddrs))]
	w.begin()
	w.addrs[a] = !w.addrs[a]
	w.begin()
	w.tellAddrs()
}

var nodePortAddrs = []netip.Addr{netip.MustParseAddr("192.168.1.5"), netip.MustParseAddr("192.168.1.6")}

func (w *world) tellAddrs() {
	w.SetNodePortAddrs(slices.DeleteFunc(slices.Clone(nodePortAddrs), func(a netip.Addr) bool { return !w.addrs[a] }))
}

// tell says what the kernel holds.
func (w *world) tell(k string) {
	w.told[k] = true
	var gone []string
	to, held := w.holds[k]
	if w.left[k] || !held {
		gone = []string{k}
	}
	w.left[k] = false
	if held {
		w.update(gone, strings.Join(append([]string{k}, to...), " "))
	} else {
		w.update(gone)
	}
}

// begin lets a client send to a key. Flows for a key without an endpoint are
// refused; for one that nobody holds they go untranslated.
func (w *world) begin() {
	k := w.keys[w.IntN(len(w.keys))]
	proto, dst := w.cut(k)
	w.clients++
	client := fmt.Sprintf("10.0.%d.%d:1000", w.clients>>8, w.clients&255)
	to, held := w.holds[k]
	if at := netip.MustParseAddrPort(dst).Addr(); key(k).Addr != at {
		held = held && w.addrs[at]
	}
	switch {
	case held && len(to) == 0:
		return
	case held:
		text := fmt.Sprintf("%s %s %s %s", proto, client, dst, to[w.IntN(len(to))])
		w.ours[client] = true
		w.table.Add(flow(text))
	default:
		w.table.Add(flow(fmt.Sprintf("%s %s %s %s", proto, client, dst, dst)))
	}
}

// cut returns the protocol of a key and its destination, of a NodePort one of two.
func (w *world) cut(k string) (proto, dst string) {
	f := key(k)
	if !f.Addr.IsValid() {
		f.Addr = nodePortAddrs[w.IntN(len(nodePortAddrs))]
	}
	return map[model.Protocol]string{model.TCP: "tcp", model.UDP: "udp", model.SCTP: "sctp"}[f.Protocol], netip.AddrPortFrom(f.Addr, f.Port).String()
}

// turnNow lets the Cleaner look, unless it is looking.
func (w *world) turnNow() {
	if !w.looking && w.IntN(2) == 0 {
		w.looking, w.writes = true, w.IntN(6)
		w.notBefore = w.notBefore.Add(-1 << 40) // no waiting after a failure
		w.turn(w.t.Context())
		w.looking = false
	}
}

// goesRight reports whether the kernel would send a flow where it goes.
func (w *world) goesRight(x *conntrack.Flow) bool {
	for k, to := range w.holds {
		f := key(k)
		if !f.Addr.IsValid() && w.addrs[x.Orig.Dst.Addr()] {
			f.Addr = x.Orig.Dst.Addr()
		}
		if x.Orig.Dst == netip.AddrPortFrom(f.Addr, f.Port) && x.Protocol == uint8(f.Protocol) {
			return slices.Contains(to, x.Reply.Src.String()) || len(to) == 0 && !x.Translated() // it is ended when an endpoint comes
		}
	}
	return !w.ours[x.Orig.Src.String()] // of a key that nobody holds: others' flows
}

// Flows implements conntrack.Table, with a world that goes on beside it.
func (w *world) Flows(ctx context.Context, f conntrack.Filter, emit func(conntrack.Flow)) error {
	fail := w.IntN(100) < w.broken
	all := w.table.All()
	for i := 0; i < len(all) || w.writes > 0; i++ {
		if w.writes > 0 && w.IntN(3) == 0 {
			w.writes--
			w.write()
			all = w.table.All()
		}
		if fail && w.IntN(4) == 0 {
			return [...]error{conntrack.ErrInterrupted, errors.New("no buffer space")}[w.IntN(2)]
		}
		if i < len(all) && f.Matches(&all[i]) {
			emit(all[i])
		}
	}
	return nil
}

// Delete implements conntrack.Table, and complains about what it must not be asked.
func (w *world) Delete(ctx context.Context, flows []conntrack.Flow) (int, error) {
	for i := range flows {
		if flows[i].Translated() && w.goesRight(&flows[i]) { // one without translation begins again as it was, if nobody holds its key
			w.t.Errorf("a flow that goes right is ended: %s", &flows[i])
		}
	}
	if w.IntN(100) < w.broken {
		n, _ := w.table.Delete(ctx, flows[:len(flows)/2])
		return n, errors.New("no buffer space")
	}
	return w.table.Delete(ctx, flows)
}

func (w *world) Close() error { return nil }

// TestNoLiveFlowEndsAndNoStaleOneStays: whatever the order of writes, words, looks
// and failures. The kernel holds at each moment what it holds; no flow is ended
// that goes there, and once everything has been told none is left that does not.
func TestNoLiveFlowEndsAndNoStaleOneStays(t *testing.T) {
	for seed := range uint64(400) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 9)), t: t, holds: map[string][]string{}, told: map[string]bool{}, left: map[string]bool{}, ours: map[string]bool{},
			addrs: map[netip.Addr]bool{},
			keys:  []string{"udp 10.96.0.1:53", "udp 10.96.0.2:53", "tcp 10.96.0.1:80", "sctp 10.96.0.1:70", "udp :30053", "sctp :30070"}, broken: int(seed % 40)}
		w.rig = newRig(Params{ResetGone: true, MaxStale: 3 + w.IntN(20), MaxSuspects: 1 + w.IntN(30)})
		w.p.Table = w
		w.Sweep()
		for range 40 {
			w.write()
			w.turnNow()
		}
		w.broken, w.looking = 0, true // quiet from now on
		for _, k := range w.keys {
			if !w.told[k] {
				w.tell(k)
			}
		}
		w.p.Table = w.table
		w.turn(t.Context())
		for i := 0; i < 100 && !w.suspects.none(); i++ {
			w.notBefore = w.notBefore.Add(-1 << 40)
			w.turn(t.Context())
		}
		for _, x := range w.table.All() {
			untranslatedTCP := x.Protocol == uint8(model.TCP) && !x.Translated()
			if !w.goesRight(&x) && !untranslatedTCP {
				t.Errorf("a stale flow stays: %s", &x)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
