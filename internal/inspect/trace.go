package inspect

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
)

// Trace is the answer of `fairlead trace`: the path of a new connection's first
// packet through this node's rules, step by step, without sending a packet.
type Trace struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	Steps   []Step   `json:"steps"`
	Outcome string   `json:"outcome"` // forward, reject, drop or none (no Service's)
	Verdict string   `json:"verdict"` // in words
	Targets []string `json:"targets,omitempty"`
	// Source is what the target sees: "client" or "node"; "either" if it depends on
	// which target is chosen.
	Source string `json:"source,omitempty"`
	Live   *Live  `json:"live,omitempty"` // the path of a real packet; nil: not requested
}

// Step is one step of a Trace.
type Step struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Simulate computes the path of a packet. Only the engine's goroutine may call it.
// It returns an error if the question is invalid.
func Simulate(q Question, v engine.View) (Trace, error) {
	node := v.Node()
	to, proto, err := destination(&q, v)
	if err != nil {
		return Trace{}, err
	}
	c := ClientOf(q.From, &node, q.Device)
	t := Trace{From: c.String(), To: to.String() + "/" + proto.String(), Outcome: "none"}
	f := q.find(v, &node, to, proto)
	if f != nil && v.Unserved(f) != "" {
		w := q.unserved(v, &node, f, to)
		t.Outcome, t.Verdict = w.Verdict, did(w.Verdict)+": "+w.Why
		t.step("dispatch", "%s is %s of Service %s port %s, which is not served", f.Key, f.Kind, f.Service, f.Port)
		t.step("verdict", "%s", t.Verdict)
		return t, nil
	}
	if f == nil {
		t.Outcome, t.Verdict = q.nobodys(v, &node, to, proto)
		t.step("dispatch", "no Service has %s", t.To)
		t.step("verdict", "%s", t.Verdict)
		return t, nil
	}
	if h, held := v.HeldOf(f.Service); held {
		r := RefusedOf(h)
		t.step("kernel", "the kernel state differs from the decision below: rejected %s", r.text())
	}
	t.follow(f, q.ways(v, &node, f, &c)[0], c, q.Answered != nil)
	return t, nil
}

// destination returns the address that clients inside the cluster use for a Service's
// name, of the family of the client.
func destination(q *Question, v engine.View) (netip.AddrPort, model.Protocol, error) {
	s := &q.Subject
	if !s.ByName() {
		if !s.To.Addr().IsValid() {
			return s.To, 0, fmt.Errorf("name the address too: a NodePort answers on the addresses of this node")
		}
		proto := s.Protocol
		if proto == 0 {
			proto = model.TCP
		}
		return q.translated(v), proto, nil
	}
	res := v.Decide(s.Service)
	for i := range res.Frontends {
		f := &res.Frontends[i]
		if f.Key.Addr.IsValid() && f.Key.Family == model.FamilyOf(q.From) && !f.Key.Range() && (s.Port == "" || s.Port == f.Port || s.Port == fmt.Sprint(f.Key.Port)) {
			return netip.AddrPortFrom(f.Key.Addr, f.Key.Port), f.Key.Protocol, nil
		}
	}
	what := "Service " + s.Service.String()
	if s.Port != "" {
		what = fmt.Sprintf("port %q of %s", s.Port, what)
	}
	return s.To, 0, fmt.Errorf("%s has no address of %s here: fairlead explain %s shows the reason", what, model.FamilyOf(q.From), s.Service)
}

func (t *Trace) step(name, format string, args ...any) {
	t.Steps = append(t.Steps, Step{name, fmt.Sprintf(format, args...)})
}

func (t *Trace) follow(f *model.Frontend, w Way, c Client, relayed bool) {
	why, shut := guardedAgainst(f, c.Addr)
	unasked := relayed && f.Refuses()
	shut = shut && !unasked
	switch {
	case unasked:
		t.step("guard", "nothing listens there, so the source is not checked")
	case shut:
		t.step("guard", "%s", why)
	case f.Guarded:
		t.step("guard", "accepted by %s %s", rangesField(f), prefixes(f.SourceRanges))
	default:
		t.step("guard", "not guarded")
	}
	t.Outcome = w.Verdict
	if !shut {
		t.step("dispatch", "%s is %s of Service %s port %s: %s", f.Key, f.Kind, f.Service, f.Port, did(w.Verdict))
		if f.LocalOnly {
			t.step("policy", "externalTrafficPolicy Local: %s", map[bool]string{true: "a pod or this node can use every endpoint", false: "from outside, endpoints on this node only"}[c.Pod || c.Node])
		}
	}
	if w.Verdict != model.Forward.String() {
		t.Verdict = did(w.Verdict) + ": " + w.Why
		t.step("verdict", "%s", t.Verdict)
		return
	}
	for _, b := range w.Backends {
		t.Targets = append(t.Targets, b.Addr)
	}
	how := map[bool]string{true: "relay", false: "dnat"}[relayed]
	switch {
	case w.Masquerade == "":
		t.Source = "client"
		t.step(how, "to %s; the source is preserved", w.text())
	case w.Masquerade == Hairpin && w.Count > 1:
		t.Source = "either"
		t.step(how, "to %s", w.text())
	default:
		t.Source = "node"
		t.step(how, "to %s", w.text())
	}
	t.Verdict = "sent to " + oneOf(t.Targets, w.Count)
	t.step("verdict", "%s", t.Verdict)
}

func oneOf(targets []string, count int) string {
	if count == 1 {
		return targets[0]
	}
	shown := slices.Clone(targets[:min(len(targets), mostNamed)])
	if count > len(shown) {
		shown = append(shown, fmt.Sprintf("%d more", count-len(shown)))
	}
	return "one of " + strings.Join(shown, ", ")
}

// Text writes the steps.
func (t *Trace) Text(w io.Writer) {
	fmt.Fprintf(w, "From %s\nTo   %s\n", t.From, t.To)
	for i, s := range t.Steps {
		if i < len(t.Steps)-1 {
			fmt.Fprintf(w, "%d %-12s %s\n", i+1, s.Name, s.Text)
		}
	}
	fmt.Fprintf(w, "Verdict: %s\n", t.Verdict)
	if t.Live != nil {
		t.Live.write(w)
	}
}
