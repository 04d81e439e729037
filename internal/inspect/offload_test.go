package inspect

import (
	"bytes"
	"strings"
	"testing"
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
