package inspect

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

func keyOf(proto model.Protocol, addr string, port, last uint16) model.FrontendKey {
	k := model.FrontendKey{Family: model.IPv4, Protocol: proto, Port: port, LastPort: last}
	if addr != "" {
		k.Addr = netip.MustParseAddr(addr)
		k.Family = model.FamilyOf(k.Addr)
	}
	return k
}

// TestFlowsAreCountedOnce: every flow to a key is found by exactly one of the looks at the
// table, and counted where it goes; others are not.
func TestFlowsAreCountedOnce(t *testing.T) {
	wide := []model.FrontendKey{keyOf(model.UDP, "10.96.0.2", 1, 0), keyOf(model.UDP, "10.96.0.2", 2, 0), keyOf(model.UDP, "10.96.0.2", 3, 0),
		keyOf(model.UDP, "10.96.0.2", 4, 0), keyOf(model.UDP, "10.96.0.2", 5, 0)}
	for name, c := range map[string]struct {
		keys    []model.FrontendKey
		queries int
		to      []string // of flows that count
		not     []string
	}{
		"one port":             {[]model.FrontendKey{keyOf(model.TCP, "10.96.0.1", 80, 0)}, 1, []string{"10.96.0.1:80"}, []string{"10.96.0.1:81", "10.96.0.2:80"}},
		"a NodePort":           {[]model.FrontendKey{keyOf(model.TCP, "", 30080, 0)}, 1, []string{"192.0.2.1:30080"}, []string{"192.0.2.9:30080", "192.0.2.1:80"}},
		"two addresses":        {[]model.FrontendKey{keyOf(model.TCP, "10.96.0.1", 80, 0), keyOf(model.TCP, "203.0.113.1", 80, 0)}, 1, []string{"10.96.0.1:80", "203.0.113.1:80"}, []string{"10.96.0.2:80"}},
		"two ports":            {[]model.FrontendKey{keyOf(model.TCP, "10.96.0.1", 80, 0), keyOf(model.TCP, "", 30080, 0)}, 2, []string{"10.96.0.1:80", "192.0.2.1:30080"}, []string{"10.96.0.1:30080"}},
		"two families":         {[]model.FrontendKey{keyOf(model.TCP, "10.96.0.1", 80, 0), keyOf(model.TCP, "fd96::1", 80, 0)}, 2, []string{"10.96.0.1:80", "[fd96::1]:80"}, []string{"[fd96::2]:80"}},
		"a range":              {[]model.FrontendKey{keyOf(model.TCP, "10.96.0.1", 8000, 8999)}, 1, []string{"10.96.0.1:8000", "10.96.0.1:8999"}, []string{"10.96.0.1:9000"}},
		"a range and NodePort": {[]model.FrontendKey{keyOf(model.TCP, "10.96.0.1", 8000, 8999), keyOf(model.TCP, "", 30080, 0)}, 1, []string{"10.96.0.1:8500", "192.0.2.1:30080"}, nil},
		"many ports":           {wide, 1, nil, []string{"10.96.0.2:6", "10.96.0.2:1"}}, // those are UDP
	} {
		e := Explanation{frontends: c.keys}
		count := e.Counter([]netip.Addr{netip.MustParseAddr("192.0.2.1")})
		queries := count.Queries()
		if len(queries) != c.queries {
			t.Errorf("%s: looks %+v", name, queries)
		}
		for _, to := range slices.Concat(c.to, c.not) {
			f := Flow{Protocol: model.TCP, To: netip.MustParseAddrPort(to), End: netip.MustParseAddrPort("10.244.1.5:8080")}
			found := 0
			for _, q := range queries {
				if q.Family == model.FamilyOf(f.To.Addr()) && q.Protocol == f.Protocol && (!q.Addr.IsValid() || q.Addr == f.To.Addr()) && (q.Port == 0 || q.Port == f.To.Port()) {
					found++
					count.Add(f)
				}
			}
			if found != 1 && slices.Contains(c.to, to) {
				t.Errorf("%s: %s is found by %d looks", name, to, found)
			}
		}
		if count.all.Open != len(c.to) {
			t.Errorf("%s: %d flows, want %d", name, count.all.Open, len(c.to))
		}
	}
}

// TestFlowsInTheAnswer: by endpoint, and those to none of them are named, most first.
func TestFlowsInTheAnswer(t *testing.T) {
	at := func(s string) flowEnd { return flowEnd{model.TCP, netip.MustParseAddrPort(s)} }
	e := Explanation{frontends: []model.FrontendKey{keyOf(model.TCP, "10.96.0.1", 80, 0)}, Endpoints: []Endpoint{
		{Addr: "10.244.1.5:8080", State: "ready", New: true, at: at("10.244.1.5:8080")}, {Addr: "10.244.1.6:8080", State: "ready", New: true, at: at("10.244.1.6:8080")}}}
	c := e.Counter(nil)
	add := func(n int, end string, replied bool) {
		for range n {
			c.Add(Flow{Protocol: model.TCP, To: netip.MustParseAddrPort("10.96.0.1:80"), End: netip.MustParseAddrPort(end), Replied: replied})
		}
	}
	add(3, "10.244.1.5:8080", true)
	add(2, "10.244.1.5:8080", false)
	for i := range maxElsewhere + 2 {
		add(i+1, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 9, byte(i)}), 8080).String(), true)
	}
	e.TakeFlows(c, time.Millisecond, errors.New("interrupted"))
	var b strings.Builder
	e.Text(&b)
	for _, want := range []string{"incomplete: interrupted", "83 (2 unanswered) open", "5 (2 unanswered)", "12 to 10.244.9.11:8080/TCP, which is not one of the endpoints", "and to 2 more"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if got := e.Endpoints[1].Flows; got == nil || got.Open != 0 {
		t.Errorf("the endpoint without flows: %+v", got)
	}
}

// TestConntrackFills: status warns where the alert is raised, and says full before it is too late.
func TestConntrackFills(t *testing.T) {
	for count, want := range map[uint64]string{80: "(80 %)  insert", 81: "WARN", 90: "FULL", 100: "FULL"} {
		var b strings.Builder
		(&Status{Flows: &Flows{Count: count, Max: 100}}).Text(&b)
		if text := b.String(); !strings.Contains(text, want) || strings.Contains(text, "WARN") && want != "WARN" {
			t.Errorf("%d of 100: want %q in\n%s", count, want, text)
		}
	}
}
