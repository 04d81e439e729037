package inspect

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
)

// status says what is accelerated, and why it is not; nothing to who did not ask for it.
func TestStatusTellsAcceleration(t *testing.T) {
	for want, o := range map[string]*Offload{
		"Accelerated  connections of more than 20 packets, between 3 devices\n":           {Threshold: 20, Devices: 3},
		"Accelerated  connections of more than 4 packets, between 0 devices: write: no\n": {Threshold: 4, Why: "write: no"},
		"Accelerated  off: no flowtables\n":                                               {Why: "no flowtables"},
		"":                                                                                nil,
	} {
		var b bytes.Buffer
		(&Status{Offload: o}).Text(&b)
		if !strings.Contains(b.String(), want) || o == nil && strings.Contains(b.String(), "Accelerated") {
			t.Errorf("%q does not say %q", b.String(), want)
		}
	}
}

// explain says whether a Service's connections are accelerated, after how many packets, and why not.
func TestExplainTellsAcceleration(t *testing.T) {
	on := &Offload{Threshold: 20}
	tcp := model.Frontend{Key: model.FrontendKey{Protocol: model.TCP, Port: 80}, Verdict: model.Forward}
	sctp, ports, empty := tcp, tcp, tcp
	sctp.Key.Protocol, ports.Key.LastPort, empty.Verdict = model.SCTP, 90, model.Reject
	local := empty
	local.LocalOnly, local.LocalVerdict = true, model.Forward
	for _, c := range []struct {
		node *Offload
		wish int
		of   []model.Frontend
		want string
	}{
		{nil, 0, []model.Frontend{tcp}, ""},
		{&Offload{Why: "no flowtables"}, 4, []model.Frontend{tcp}, "off on this node: no flowtables"},
		{on, -1, []model.Frontend{tcp}, "off for this Service, by its annotation fairlead.dev/offload"},
		{on, 0, []model.Frontend{sctp, ports}, "none: only single ports of TCP and UDP can be accelerated"},
		{on, 0, []model.Frontend{empty}, "none: there is no endpoint"},
		{on, 0, []model.Frontend{local}, "connections of more than 20 packets"},
		{on, 0, []model.Frontend{tcp, ports}, "connections of more than 20 packets, but only of single ports of TCP and UDP"},
		{on, 4, []model.Frontend{tcp}, "connections of more than 4 packets, by the annotation fairlead.dev/offload (others: 20)"},
		{&Offload{Threshold: 20, Why: "write: no"}, 0, []model.Frontend{tcp}, "connections of more than 20 packets; but on this node write: no"},
	} {
		svc := &model.Service{}
		svc.Extras.Offload = c.wish
		if got := c.node.of(svc, c.of); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	var b bytes.Buffer
	(&Explanation{FastPath: "none: because"}).Text(&b)
	if !strings.Contains(b.String(), "\nFast path  none: because\n") {
		t.Errorf("the answer is %q", b.String())
	}
}

// TestExcluding: who is excluded, and as what, is said; where nothing is accelerated anyway, it is not.
func TestExcluding(t *testing.T) {
	frontend := func(addr string, ends ...string) model.Frontend {
		f := model.Frontend{Key: model.FrontendKey{Protocol: model.TCP, Port: 80}, Verdict: model.Forward}
		if addr != "" {
			f.Key.Addr = netip.MustParseAddr(addr)
		}
		for _, e := range ends {
			f.Backends = append(f.Backends, model.Backend{Addr: netip.MustParseAddr(e)})
		}
		return f
	}
	list := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("10.96.0.9/32"), netip.MustParsePrefix("fd00::/64")}
	for want, c := range map[string]struct {
		sentence string
		chosen   []model.Frontend
		list     []netip.Prefix
		client   string
	}{
		"off":  {"off", []model.Frontend{frontend("10.96.0.9")}, list, ""},
		"none": {"none", []model.Frontend{frontend("10.96.0.9")}, list, "10.1.0.7"},
		"more": {"more", []model.Frontend{frontend("10.96.0.9", "10.1.0.1")}, nil, "10.1.0.7"},
		"none for this client: fd00::1 is in --offload-exclude-file": {"all", []model.Frontend{frontend("10.96.0.1")}, list, "fd00::1"},
		"none: the Service's address is in --offload-exclude-file":   {"all", []model.Frontend{frontend("10.96.0.9")}, list, "10.2.0.1"},
		"all of 10.2.0.1": {"all of 10.2.0.1", []model.Frontend{frontend("10.96.0.9"), frontend("", "10.3.0.1")}, list, "10.2.0.1"},
		"all; not to 10.1.0.1 (in --offload-exclude-file)":                                                  {"all", []model.Frontend{frontend("10.96.0.1", "10.1.0.1", "10.3.0.1", "10.1.0.1")}, list, "10.2.0.1"},
		"all; not from clients in the 3 addresses and ranges in --offload-exclude-file":                     {"all", []model.Frontend{frontend("10.96.0.1", "10.3.0.1")}, list, ""},
		"more; not to 10.1.0.1, 10.1.0.2, 10.1.0.3, 10.1.0.4, 10.1.0.5, 1 more (in --offload-exclude-file)": {"more", []model.Frontend{frontend("10.96.0.1", "10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6")}, list, "10.2.0.1"},
	} {
		client := netip.Addr{}
		if c.client != "" {
			client = netip.MustParseAddr(c.client)
		}
		if got := excluding(c.sentence, c.chosen, c.list, client); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
