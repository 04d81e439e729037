package inspect

import (
	"bytes"
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
		{on, 0, []model.Frontend{tcp, ports}, "connections of more than 20 packets, but of single ports of TCP and UDP only"},
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
