package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// Offload is the state of the acceleration, by which connections bypass the rules.
type Offload struct {
	Threshold int    `json:"thresholdPackets"` // 0: none are accelerated
	Devices   int    `json:"devices"`
	Why       string `json:"why,omitempty"` // why it is off or limited
}

func (o *Offload) text() string {
	out := "off"
	if o.Threshold > 0 {
		out = fmt.Sprintf("connections of more than %d packets, between %d devices", o.Threshold, o.Devices)
		if o.Devices == 0 && o.Why == "" {
			out = fmt.Sprintf("connections of more than %d packets; no device matches yet", o.Threshold)
		}
	}
	if o.Why != "" {
		out += ": " + o.Why
	}
	return out
}

// of returns whether connections to some Frontends of a Service bypass the rules, and why not; "" if acceleration was not
// requested.
func (o *Offload) of(svc *model.Service, chosen []model.Frontend) string {
	fit := func(f model.Frontend) bool {
		return !f.Key.Range() && (f.Key.Protocol == model.TCP || f.Key.Protocol == model.UDP)
	}
	forwards := func(f model.Frontend) bool {
		return f.Verdict == model.Forward || f.LocalOnly && f.LocalVerdict == model.Forward
	}
	switch {
	case o == nil:
		return ""
	case o.Threshold == 0:
		return "off on this node: " + o.Why
	case svc.Extras.Offload < 0:
		return "off for this Service, by its annotation fairlead.dev/offload"
	case !slices.ContainsFunc(chosen, fit):
		return "none: only single ports of TCP and UDP can be accelerated"
	case !slices.ContainsFunc(chosen, forwards):
		return "none: there is no endpoint"
	}
	out := fmt.Sprintf("connections of more than %d packets", o.Threshold)
	if own := svc.Extras.Offload; own > 0 {
		out = fmt.Sprintf("connections of more than %d packets, by the annotation fairlead.dev/offload (others: %d)", own, o.Threshold)
	}
	if slices.ContainsFunc(chosen, func(f model.Frontend) bool { return !fit(f) }) {
		out += ", but only of single ports of TCP and UDP"
	}
	if o.Why != "" {
		out += "; but on this node " + o.Why
	}
	return out
}

// maxNamed is how many excluded endpoints are listed.
const maxNamed = 5

// excluding adds to the result of Offload.of which connections do not bypass the rules because a list excludes them.
func excluding(sentence string, chosen []model.Frontend, list []netip.Prefix, client netip.Addr) string {
	const why = "in --offload-exclude-file"
	on := func(a netip.Addr) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	if len(list) == 0 || strings.HasPrefix(sentence, "off") || strings.HasPrefix(sentence, "none") {
		return sentence
	}
	if client.IsValid() && on(client) {
		return fmt.Sprintf("none for this client: %s is %s", client, why)
	}
	if !slices.ContainsFunc(chosen, func(f model.Frontend) bool { return !f.Key.Addr.IsValid() || !on(f.Key.Addr) }) {
		return "none: the Service's address is " + why
	}
	var ends []string
	for i := range chosen {
		for _, b := range chosen[i].Backends {
			if a := b.Addr.String(); on(b.Addr) && !slices.Contains(ends, a) {
				ends = append(ends, a)
			}
		}
	}
	if n := len(ends); n > 0 {
		if n > maxNamed {
			ends = append(ends[:maxNamed], fmt.Sprintf("%d more", n-maxNamed))
		}
		sentence += fmt.Sprintf("; not to %s (%s)", strings.Join(ends, ", "), why)
	}
	if !client.IsValid() {
		sentence += fmt.Sprintf("; not from clients in the %d addresses and ranges %s", len(list), why)
	}
	return sentence
}
