package conntrack

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

// rig is a Cleaner over a table in memory, driven turn by turn.
type rig struct {
	*Cleaner
	table *conntrack.Fake
	count *conntrack.Counter
}

func newRig(p Params, flows ...string) *rig {
	r := &rig{table: &conntrack.Fake{}}
	r.count = &conntrack.Counter{Table: r.table}
	p.Table, p.Rest = r.count, cmp.Or(p.Rest, -1) // no pause between turns, unless it is asked for
	r.Cleaner = New(p)
	for _, f := range flows {
		r.table.Add(flow(f))
	}
	return r
}

// flow reads "udp 10.0.0.1:1001 10.96.0.1:53 10.1.0.1:5353": client, where it
// wanted to go, who answers.
func flow(text string) conntrack.Flow {
	f := strings.Fields(text)
	x := conntrack.Flow{Family: conntrack.IPv4, Protocol: map[string]uint8{"tcp": 6, "udp": 17, "sctp": 132}[f[0]]}
	client := netip.MustParseAddrPort(f[1])
	x.Orig = conntrack.Tuple{Src: client, Dst: netip.MustParseAddrPort(f[2])}
	x.Reply = conntrack.Tuple{Src: netip.MustParseAddrPort(f[3]), Dst: client}
	if client.Addr().Is6() {
		x.Family = conntrack.IPv6
	}
	if len(f) > 4 {
		x.Zone = 9
	}
	return x
}

// frontend reads "udp 10.96.0.1:53 10.1.0.1:5353 ..."; a NodePort is ":30053", a
// backend "~10.1.0.2:5353" is another that serves, "-10.1.0.2:5353" one that does
// not, "@10.1.0.2:5353" is in the local list only.
func frontend(text string) model.Frontend {
	w := strings.Fields(text)
	f := model.Frontend{Key: key(w[0] + " " + w[1]), Verdict: model.Reject}
	for _, b := range w[2:] {
		ap := netip.MustParseAddrPort(strings.TrimLeft(b, "~-@"))
		switch b[0] {
		case '~', '-':
			f.Others = append(f.Others, model.Other{Addr: ap, Serving: b[0] == '~'})
		case '@':
			f.LocalOnly = true
			f.LocalBackends = append(f.LocalBackends, model.Backend{Addr: ap.Addr(), Port: ap.Port(), Weight: 1, Local: true})
		default:
			f.Backends = append(f.Backends, model.Backend{Addr: ap.Addr(), Port: ap.Port(), Weight: 1})
		}
	}
	return f
}

func key(text string) model.FrontendKey {
	proto, dst, _ := strings.Cut(text, " ")
	k := model.FrontendKey{Family: model.IPv4, Protocol: map[string]model.Protocol{"tcp": model.TCP, "udp": model.UDP, "sctp": model.SCTP}[proto]}
	nodePort, dst := strings.HasPrefix(dst, ":"), dst
	if nodePort {
		dst = "0.0.0.0" + dst
	}
	ap := netip.MustParseAddrPort(dst)
	k.Port = ap.Port()
	if !nodePort {
		k.Addr, k.Family = ap.Addr(), model.FamilyOf(ap.Addr())
	}
	return k
}

func (r *rig) update(gone []string, decided ...string) {
	var keys []model.FrontendKey
	var list []model.Frontend
	for _, g := range gone {
		keys = append(keys, key(g))
	}
	for _, d := range decided {
		list = append(list, frontend(d))
	}
	r.Update(list, keys)
}

// left checks which flows are there still.
func (r *rig) left(t *testing.T, want ...string) {
	t.Helper()
	var got, texts []string
	for _, x := range r.table.All() {
		got = append(got, x.String())
	}
	for _, w := range want {
		x := flow(w)
		texts = append(texts, x.String())
	}
	if !slices.Equal(got, texts) {
		t.Errorf("flows left:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(texts, "\n  "))
	}
}

const (
	dns1  = "udp 10.0.0.1:1001 10.96.0.1:53 10.1.0.1:5353"
	dns2  = "udp 10.0.0.1:1002 10.96.0.1:53 10.1.0.2:5353"
	other = "udp 10.0.0.1:1003 10.96.0.2:53 10.1.0.1:5353" // another Service, same endpoint
	node1 = "udp 10.0.0.1:1004 192.168.1.5:30053 10.1.0.1:5353"
	node2 = "udp 10.0.0.1:1005 192.168.1.6:30053 10.1.0.2:5353"
	far   = "udp 192.168.1.5:1006 8.8.8.8:30053 8.8.8.8:30053" // somebody else's machine
	plain = "udp 10.0.0.1:1007 10.96.0.1:53 10.96.0.1:53"      // not translated
	self  = "udp 10.0.0.1:1009 192.168.1.5:5353 192.168.1.5:5353"
	zoned = "udp 10.0.0.1:1008 10.96.0.1:53 10.96.0.1:53 zone"
	tcp1  = "tcp 10.0.0.1:1001 10.96.0.1:80 10.1.0.1:8080"
	tcp2  = "tcp 10.0.0.1:1002 10.96.0.1:80 10.1.0.2:8080"
	tcp0  = "tcp 10.0.0.1:1003 10.96.0.1:80 10.96.0.1:80"
	sctp1 = "sctp 10.0.0.1:1001 10.96.0.1:70 10.1.0.1:7070"
	v6    = "udp [fd00::1]:1001 [fd96::1]:53 [fd01::1]:5353"
)

func TestWhatIsStale(t *testing.T) {
	cases := []struct {
		name   string
		reset  bool
		flows  []string
		before []string // decided at first
		gone   []string
		now    []string // decided then
		left   []string
	}{
		{"an endpoint goes", false, []string{dns1, dns2, other}, []string{"udp 10.96.0.1:53 10.1.0.1:5353 10.1.0.2:5353", "udp 10.96.0.2:53 10.1.0.1:5353"}, nil,
			[]string{"udp 10.96.0.1:53 10.1.0.2:5353"}, []string{dns2, other}},
		{"the last endpoint goes (#139628)", false, []string{dns1, dns2}, []string{"udp 10.96.0.1:53 10.1.0.1:5353 10.1.0.2:5353"}, nil,
			[]string{"udp 10.96.0.1:53"}, nil},
		{"the Service goes", false, []string{dns1, other}, []string{"udp 10.96.0.1:53 10.1.0.1:5353", "udp 10.96.0.2:53 10.1.0.1:5353"},
			[]string{"udp 10.96.0.1:53"}, nil, []string{other}},
		{"the Service goes, and another has its address", false, []string{dns1, dns2}, []string{"udp 10.96.0.1:53 10.1.0.1:5353 10.1.0.2:5353"},
			[]string{"udp 10.96.0.1:53"}, []string{"udp 10.96.0.1:53 10.1.0.2:5353"}, []string{dns2}},
		{"an endpoint comes", false, []string{dns1}, []string{"udp 10.96.0.1:53 10.1.0.1:5353"}, nil,
			[]string{"udp 10.96.0.1:53 10.1.0.1:5353 10.1.0.2:5353"}, []string{dns1}},
		{"an endpoint ends but serves", false, []string{dns1}, []string{"udp 10.96.0.1:53 10.1.0.1:5353"}, nil,
			[]string{"udp 10.96.0.1:53 10.1.0.2:5353 ~10.1.0.1:5353"}, []string{dns1}},
		{"an endpoint serves no more", false, []string{dns1}, []string{"udp 10.96.0.1:53 10.1.0.1:5353"}, nil,
			[]string{"udp 10.96.0.1:53 10.1.0.2:5353 -10.1.0.1:5353"}, nil},
		{"an endpoint of the local list", false, []string{dns1, dns2}, []string{"udp 10.96.0.1:53 10.1.0.1:5353 10.1.0.2:5353"}, nil,
			[]string{"udp 10.96.0.1:53 10.1.0.2:5353 @10.1.0.1:5353"}, []string{dns1, dns2}},
		{"the target port changes", false, []string{dns1, node1}, []string{"udp 10.96.0.1:53 10.1.0.1:5353", "udp :30053 10.1.0.1:5353"}, nil,
			[]string{"udp 10.96.0.1:53 10.1.0.1:5354", "udp :30053 10.1.0.1:5354"}, nil},
		{"NodePorts on every address of the node, and nowhere else", false, []string{node1, node2, far},
			[]string{"udp :30053 10.1.0.1:5353 10.1.0.2:5353"}, nil, []string{"udp :30053"}, []string{far}},
		{"a NodePort goes, the ClusterIP stays", false, []string{dns1, node1, far},
			[]string{"udp :30053 10.1.0.1:5353", "udp 10.96.0.1:53 10.1.0.1:5353"}, []string{"udp :30053"}, nil, []string{dns1, far}},
		{"flows from before the endpoints (#48370)", false, []string{plain, zoned}, []string{"udp 10.96.0.1:53"}, nil,
			[]string{"udp 10.96.0.1:53 10.1.0.1:5353"}, []string{zoned}},
		{"an endpoint with the address of a Frontend", false, []string{self}, []string{"udp :5353 192.168.1.5:5353"}, nil,
			[]string{"udp 192.168.1.5:5353 192.168.1.5:5353"}, []string{self}},
		{"a Service goes whose endpoint has its address", false, []string{self}, []string{"udp :5353 192.168.1.5:5353"},
			[]string{"udp :5353"}, nil, []string{self}},
		{"flows from before the Service", false, []string{plain, dns1}, []string{"udp 10.96.0.2:53 10.1.0.1:5353"}, nil,
			[]string{"udp 10.96.0.1:53 10.1.0.1:5353"}, []string{dns1}},
		{"IPv6", false, []string{v6, dns1}, []string{"udp [fd96::1]:53 [fd01::1]:5353"}, nil, []string{"udp [fd96::1]:53 [fd01::2]:5353"}, []string{dns1}},
		{"SCTP: gone", false, []string{sctp1}, []string{"sctp 10.96.0.1:70 10.1.0.1:7070"}, nil, []string{"sctp 10.96.0.1:70"}, nil},
		{"SCTP: ending, left to finish", false, []string{sctp1}, []string{"sctp 10.96.0.1:70 10.1.0.1:7070"}, nil,
			[]string{"sctp 10.96.0.1:70 -10.1.0.1:7070"}, []string{sctp1}},
		{"TCP is left alone", false, []string{tcp1}, []string{"tcp 10.96.0.1:80 10.1.0.1:8080"}, nil, []string{"tcp 10.96.0.1:80"}, []string{tcp1}},
		{"TCP: gone, with --reset-gone-endpoints", true, []string{tcp1, tcp2, tcp0}, []string{"tcp 10.96.0.1:80 10.1.0.1:8080 10.1.0.2:8080"}, nil,
			[]string{"tcp 10.96.0.1:80 10.1.0.2:8080"}, []string{tcp2, tcp0}},
		{"TCP: ending, left to finish", true, []string{tcp1}, []string{"tcp 10.96.0.1:80 10.1.0.1:8080"}, nil,
			[]string{"tcp 10.96.0.1:80 10.1.0.2:8080 -10.1.0.1:8080"}, []string{tcp1}},
		{"TCP: the Service goes", true, []string{tcp1, dns1}, []string{"tcp 10.96.0.1:80 10.1.0.1:8080", "udp 10.96.0.1:53 10.1.0.1:5353"},
			[]string{"tcp 10.96.0.1:80"}, nil, []string{dns1}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(Params{ResetGone: c.reset})
			r.SetNodePortAddrs([]netip.Addr{netip.MustParseAddr("192.168.1.5"), netip.MustParseAddr("192.168.1.6")})
			r.update(nil, c.before...)
			r.Sweep()
			r.turn(t.Context())
			for _, f := range c.flows {
				r.table.Add(flow(f))
			}
			r.update(c.gone, c.now...)
			r.turn(t.Context())
			r.left(t, c.left...)
			swept := newRig(Params{ResetGone: c.reset}, c.left...) // a sweep finds nothing more
			swept.SetNodePortAddrs([]netip.Addr{netip.MustParseAddr("192.168.1.5"), netip.MustParseAddr("192.168.1.6")})
			swept.update(nil, c.now...)
			swept.Sweep()
			swept.turn(t.Context())
			swept.left(t, c.left...)
		})
	}
}

// Before everything is in sync nothing is touched; the sweep then compares, and
// wipes nothing (#122740).
func TestStart(t *testing.T) {
	r := newRig(Params{}, dns1, dns2, plain, tcp1, far)
	r.update(nil, "udp 10.96.0.1:53")
	r.update(nil, "udp 10.96.0.1:53 10.1.0.2:5353", "tcp 10.96.0.1:80")
	r.turn(t.Context())
	r.left(t, dns1, dns2, plain, tcp1, far)
	if n := len(r.count.Dumps()); n != 0 {
		t.Errorf("%d dumps before the first sweep", n)
	}
	r.Sweep()
	r.turn(t.Context())
	r.left(t, dns2, tcp1, far)
}

func TestForeignTranslationsStay(t *testing.T) {
	local := "udp 10.0.0.1:1001 10.96.0.1:53 169.254.20.10:53"
	r := newRig(Params{Foreign: []netip.AddrPort{netip.MustParseAddrPort("169.254.20.10:53")}}, local, dns1)
	r.update(nil, "udp 10.96.0.1:53 10.1.0.2:5353")
	r.Sweep()
	r.turn(t.Context())
	r.left(t, local)
}

// What was ours once is not ours for ever.
func TestGoneIsForgotten(t *testing.T) {
	r := newRig(Params{}, dns1)
	r.update(nil, "udp 10.96.0.1:53 10.1.0.1:5353", "udp 10.96.0.9:53")
	r.Sweep()
	r.turn(t.Context())
	r.update([]string{"udp 10.96.0.1:53"})
	r.turn(t.Context())
	r.left(t)
	r.table.Add(flow(dns1)) // somebody else translates so now
	r.Sweep()
	r.turn(t.Context())
	r.left(t, dns1)
}

// A Service came and went, or moved, before the Cleaner looked, or before it was
// known that its write had been done: the flows of the time between go too.
func TestFlowsOfTheTimeBetween(t *testing.T) {
	other := "udp 10.0.0.1:1001 10.96.0.1:53 10.1.0.9:5353" // nobody's doing
	for name, came := range map[string]func(r *rig, what string){
		"before the Cleaner looked":            func(r *rig, what string) { r.update(nil, what) },
		"by a write of which nothing is known": func(r *rig, what string) { r.Perhaps([]model.Frontend{frontend(what)}) },
		"by a write of which nothing is known, looked at meanwhile": func(r *rig, what string) {
			r.Perhaps([]model.Frontend{frontend(what)})
			r.turn(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(Params{})
			r.Sweep()
			r.turn(t.Context())
			r.table.Add(flow(dns1))
			r.table.Add(flow(other))
			came(r, "udp 10.96.0.1:53 10.1.0.1:5353")
			r.update([]string{"udp 10.96.0.1:53"})
			r.turn(t.Context())
			r.left(t, other)
			r.table.Add(flow(dns1)) // somebody else translates so now
			r.Sweep()
			r.turn(t.Context())
			r.left(t, other, dns1)
		})
	}
}

// What a change costs in dumps, and which.
func TestDumps(t *testing.T) {
	many := func(n, port int) (out string) {
		for i := range n {
			out += " " + netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), uint16(port)).String()
		}
		return out
	}
	udp := conntrack.Filter{Family: conntrack.IPv4, Protocol: 17}
	end, port, dst, nodePort, vip := udp, udp, udp, udp, udp
	nodePort.OrigPort = 30053
	vip.OrigDst, vip.OrigPort = netip.MustParseAddr("10.96.0.1"), 53
	end.ReplySrc, end.ReplyPort = netip.MustParseAddr("10.1.0.1"), 5353
	port.OrigPort = 53
	dst.OrigDst, dst.OrigPort = netip.MustParseAddr("10.96.0.9"), 53
	var scattered, scatteredGone, dns, dnsGone []string
	for i := range 9 {
		d := "udp 10.96.2." + string(rune('1'+i)) + ":53"
		dns, dnsGone = append(dns, d+many(100, 5000)), append(dnsGone, d)
		k := "udp 10.96.1." + string(rune('1'+i)) + ":5" + string(rune('1'+i))
		scattered, scatteredGone = append(scattered, k+many(1, 5000+i)), append(scatteredGone, k)
	}
	base := append([]string{"udp 10.96.0.1:53" + many(100, 5353), "udp :30053" + many(100, 5353), "tcp 10.96.0.1:80" + many(1, 80)}, append(dns, scattered...)...)
	cases := []struct {
		name string
		gone []string
		now  []string
		want []conntrack.Filter
	}{
		{"nothing new", nil, base, nil},
		{"only TCP", nil, []string{"tcp 10.96.0.1:80"}, nil},
		{"an endpoint comes", nil, []string{"udp 10.96.0.1:53" + many(101, 5353)}, nil},
		{"one endpoint of two Frontends goes: one dump", nil, []string{
			"udp 10.96.0.1:53" + strings.Replace(many(100, 5353), " 10.1.0.1:5353", "", 1),
			"udp :30053" + strings.Replace(many(100, 5353), " 10.1.0.1:5353", "", 1)}, []conntrack.Filter{end}},
		{"a Service with many endpoints goes: a dump for each key", []string{"udp 10.96.0.1:53", "udp :30053"}, nil,
			[]conntrack.Filter{nodePort, vip}},
		{"many Services of one port go: one dump of the port", dnsGone, nil, []conntrack.Filter{port}},
		{"a Service comes", nil, []string{"udp 10.96.0.9:53" + many(1, 5353)}, []conntrack.Filter{dst}},
		{"many Services go: one dump of the protocol", scatteredGone, nil, []conntrack.Filter{udp}},
		{"a sweep: only protocols that there are", nil, nil, []conntrack.Filter{udp}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(Params{})
			r.update(nil, base...)
			r.Sweep()
			r.turn(t.Context())
			if c.now == nil && c.gone == nil {
				r.Sweep()
			}
			n := len(r.count.Dumps())
			r.update(c.gone, c.now...)
			r.turn(t.Context())
			if got := r.count.Dumps()[n:]; !slices.Equal(got, c.want) {
				t.Errorf("dumps %+v, want %+v", got, c.want)
			}
		})
	}
	t.Run("no UDP, no dump", func(t *testing.T) {
		r := newRig(Params{})
		r.update(nil, "tcp 10.96.0.1:80"+many(1, 80))
		r.Sweep()
		r.turn(t.Context())
		if got := r.count.Dumps(); got != nil {
			t.Errorf("dumps %+v", got)
		}
	})
}

// What cannot be done now is done later, and Update never waits for it.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no buffer space")
		var errs []error
		var failing atomic.Value // the call that fails
		failing.Store("flows")
		r := newRig(Params{OnPass: func(p Pass) { errs = append(errs, p.Err) }}, dns1, dns2, other)
		r.count.Fail = func(call string) error {
			if call == failing.Load() {
				return broken
			}
			return nil
		}
		r.update(nil, "udp 10.96.0.1:53 10.1.0.1:5353 10.1.0.2:5353", "udp 10.96.0.2:53 10.1.0.1:5353")
		r.Sweep()
		go r.Run(t.Context())
		synctest.Wait()
		r.update([]string{"udp 10.96.0.2:53"}, "udp 10.96.0.1:53 10.1.0.2:5353")
		synctest.Wait()
		if len(errs) != 1 || !errors.Is(errs[0], broken) {
			t.Errorf("passes %v, want one failure: the second waits", errs)
		}
		failing.Store("delete")
		time.Sleep(time.Second)
		synctest.Wait()
		r.left(t, dns1, dns2, other)
		failing.Store("")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.left(t, dns2)
		if len(errs) != 3 || errs[2] != nil {
			t.Errorf("passes %v, want two failures and a success", errs)
		}
	})
}

// Whoever tells the Cleaner something does not wait for the kernel.
func TestUpdateNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Params{}, dns1, other)
		stuck := make(chan struct{})
		r.count.Fail = func(string) error { <-stuck; return nil }
		r.update(nil, "udp 10.96.0.1:53", "udp 10.96.0.2:53 10.1.0.1:5353")
		r.Sweep()
		go r.Run(t.Context())
		synctest.Wait()
		for range 1000 {
			r.update([]string{"udp 10.96.0.2:53"}, "udp 10.96.0.1:53")
			r.Sweep()
			r.SetNodePortAddrs(nil)
		}
		if n := len(r.in.words); n != 2 {
			t.Errorf("%d changes wait, want the latest of each of 2 keys", n)
		}
		close(stuck)
		synctest.Wait()
		r.left(t)
	})
}

// An interrupted dump is used for what it has, and made again.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes := 0
		r := newRig(Params{OnPass: func(Pass) { passes++ }}, dns1)
		cut := &interrupter{Table: r.table}
		r.p.Table = cut
		r.update(nil, "udp 10.96.0.1:53")
		r.Sweep()
		go r.Run(t.Context())
		synctest.Wait()
		r.left(t)
		r.table.Add(flow(dns2)) // what the first dump did not see
		time.Sleep(time.Second)
		synctest.Wait()
		r.left(t)
		if passes != 2 {
			t.Errorf("%d passes, want 2", passes)
		}
		r.table.Add(flow(dns1)) // and what nobody saw is found by the next sweep
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		r.left(t)
	})
}

// interrupter breaks the first dump off at its end.
type interrupter struct {
	conntrack.Table
	once bool
}

func (i *interrupter) Flows(ctx context.Context, f conntrack.Filter, emit func(conntrack.Flow)) error {
	err := i.Table.Flows(ctx, f, emit)
	if !i.once && err == nil {
		i.once = true
		return conntrack.ErrInterrupted
	}
	return err
}

// More stale flows than one look remembers take several looks, in one pass.
func TestMoreStaleThanOneLookRemembers(t *testing.T) {
	var last Pass
	r := newRig(Params{MaxStale: 2, OnPass: func(p Pass) { last = p }}, dns1, dns2, node1, plain, other)
	r.SetNodePortAddrs([]netip.Addr{netip.MustParseAddr("192.168.1.5")})
	r.update(nil, "udp 10.96.0.1:53", "udp 10.96.0.2:53 10.1.0.1:5353", "udp :30053")
	r.Sweep()
	r.turn(t.Context())
	r.left(t, other)
	if last.Err != nil || last.Dumps != 3 || last.Deleted[model.IPv4] != 4 {
		t.Errorf("pass %+v, want 3 dumps and 4 deletions", last)
	}
}

// With more suspects than may be remembered everything is compared.
func TestTooManySuspects(t *testing.T) {
	for suspects, sweep := range map[int]bool{3: false, 4: true} {
		var last Pass
		r := newRig(Params{MaxSuspects: 3, OnPass: func(p Pass) { last = p }}, dns1)
		backends := " 10.1.0.1:5353 10.1.0.2:5353 10.1.0.3:5353 10.1.0.4:5353"
		r.update(nil, "udp 10.96.0.1:53"+backends)
		r.Sweep()
		r.turn(t.Context())
		r.table.Add(flow(dns1))
		r.update(nil, "udp 10.96.0.1:53"+backends[14*suspects:])
		r.turn(t.Context())
		r.left(t)
		if last.Sweep != sweep {
			t.Errorf("%d suspects: sweep is %t", suspects, last.Sweep)
		}
	}
}

// TestNothingToLookFor: what cannot make a flow stale costs no walk of the table.
func TestNothingToLookFor(t *testing.T) {
	r := newRig(Params{ResetGone: true})
	r.update(nil, "udp 10.96.0.1:53 10.1.0.1:5353")
	r.Sweep()
	r.turn(t.Context())
	before := len(r.count.Dumps())
	for _, step := range [][]string{
		{"udp 10.96.0.2:53"}, // a Service comes, its endpoints later
		{"udp 10.96.0.2:53"},
		{"tcp 10.96.0.3:80 10.1.0.1:80"}, // a TCP flow that is not translated is nobody's
		{"udp 10.96.0.1:53 10.1.0.1:5353 10.1.0.2:5353"},
		{"udp 10.96.0.1:53 10.1.0.2:5353 ~10.1.0.1:5353"},
	} {
		var list []model.Frontend
		for _, text := range step {
			list = append(list, frontend(text))
		}
		r.Perhaps(list)
		r.turn(t.Context())
		r.Update(list, nil)
		r.turn(t.Context())
		if n := len(r.count.Dumps()) - before; n != 0 {
			t.Fatalf("%q: %d dumps", step, n)
		}
	}
	r.update([]string{"udp 10.96.0.2:53"}) // it had none
	r.turn(t.Context())
	if n := len(r.count.Dumps()) - before; n != 0 {
		t.Errorf("a Service without endpoints goes: %d dumps", n)
	}
}

// TestOneFamilyIsNotTheOther: a Pass says which families were looked at.
func TestOneFamilyIsNotTheOther(t *testing.T) {
	var last Pass
	r := newRig(Params{OnPass: func(p Pass) { last = p }}, v6)
	r.update(nil, "udp [fd96::1]:53 [fd01::1]:5353", "udp 10.96.0.1:53 10.1.0.1:5353")
	r.Sweep()
	r.turn(t.Context())
	if len(last.Looked) != 2 {
		t.Errorf("a sweep looked at %v", last.Looked)
	}
	r.update(nil, "udp [fd96::1]:53", "udp 10.96.0.1:53 10.1.0.1:5353")
	r.turn(t.Context())
	if _, six := last.Looked[model.IPv6]; !six || len(last.Looked) != 1 || last.Deleted[model.IPv6] != 1 {
		t.Errorf("an IPv6 endpoint went: pass %+v", last)
	}
}

// TestRest: one pass after another would keep a processor busy with a big table.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []time.Time
		r := newRig(Params{Rest: 9, OnPass: func(Pass) { ended = append(ended, time.Now()) }})
		slow := 20 * time.Millisecond
		r.count.Fail = func(string) error { time.Sleep(slow); return nil } // virtual time (synctest)
		r.update(nil, "udp 10.96.0.1:53 10.1.0.1:5353")
		r.Sweep()
		go r.Run(t.Context())
		for i := range 100 {
			r.update(nil, []string{"udp 10.96.0.1:53 10.1.0.1:5353", "udp 10.96.0.1:53 10.1.0.2:5353"}[i%2])
			time.Sleep(10 * time.Millisecond) // virtual time (synctest)
		}
		time.Sleep(time.Second) // virtual time (synctest)
		if n := len(ended); n < 5 || n > 7 {
			t.Errorf("%d passes of 20 ms in a second of changes, want 5 or 6", n)
		}
		for i := range ended[1:] {
			if d := ended[i+1].Sub(ended[i]); d < 10*slow {
				t.Errorf("a pass ended %v after another", d)
			}
		}
		quiet := len(ended)
		slow = 10 * time.Second // and a pass that takes long does not put the next one off for long
		r.update(nil, "udp 10.96.0.1:53 10.1.0.3:5353")
		time.Sleep(11 * time.Second) // virtual time (synctest)
		r.update(nil, "udp 10.96.0.1:53 10.1.0.4:5353")
		time.Sleep(11 * time.Second) // virtual time (synctest)
		if len(ended) != quiet+2 {
			t.Errorf("%d passes, want 2", len(ended)-quiet)
		}
	})
}

// TestAnEndpointIsShownGoneForAMoment: if it is back before the Cleaner looks, its
// flows stay. (The engine tells no absence that is shorter than its patience.)
func TestAnEndpointIsShownGoneForAMoment(t *testing.T) {
	r := newRig(Params{}, dns1, dns2)
	both := "udp 10.96.0.1:53 10.1.0.1:5353 10.1.0.2:5353"
	r.update(nil, both)
	r.Sweep()
	r.turn(t.Context())
	r.update(nil, "udp 10.96.0.1:53 10.1.0.2:5353")
	r.update(nil, both)
	r.turn(t.Context())
	r.left(t, dns1, dns2)
}
