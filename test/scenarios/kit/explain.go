package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// Explainer is a Subject that can explain a connection, as `fairlead explain --from` does. Without a valid from, it explains the connections of all
// clients.
type Explainer interface {
	Explain(ctx context.Context, about string, from netip.Addr) (*inspect.Explanation, error)
}

var _ Explainer = (*Fairlead)(nil)

// explainLimit bounds one explain request.
const explainLimit = 30 * time.Second

// Explain implements Explainer over the agent's socket.
func (f *Fairlead) Explain(ctx context.Context, about string, from netip.Addr) (*inspect.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(explainLimit))
	defer cancel()
	q := url.Values{"q": {about}}
	if from.IsValid() {
		q.Set("from", from.String())
	}
	var body []byte
	if err := f.setup.Lab.Node().Do(func() (err error) {
		body, err = control.Get(ctx, "/explain?"+q.Encode())
		return err
	}); err != nil {
		return nil, fmt.Errorf("ask for an explanation: %w", err)
	}
	e := &inspect.Explanation{}
	return e, json.Unmarshal(body, e)
}

// explained compares the observed replies with the agent's explanation: it must name exactly the backends that answered, or the reject or drop that
// was observed.
func (e *fromExpectation) explained(ctx context.Context, r *run, replies []netlab.Reply) error {
	asker, can := r.subject.(Explainer)
	h, err := r.lab.Host(e.host)
	if err != nil || !can || r.halted || e.answer.kind == "fails" || e.answer.kind == "closed" {
		return err
	}
	from := h.Addrs.Of(e.to.Addr())
	for _, rep := range replies {
		if rep.Own.IsValid() && r.mode != userspace && r.mode != ipvs { // there it is the Service's own address: foreign to explain
			from = rep.Own
		}
	}
	said, err := asker.Explain(ctx, e.to.String()+"/"+string(e.proto), from)
	if errors.Is(err, control.ErrNoAgent) { // the scenario itself stopped the agent
		return nil
	}
	if err != nil {
		return err
	}
	if err := e.agrees(r, said, replies); err != nil {
		text, _ := json.Marshal(said)
		return fmt.Errorf("explain --from %s: %w: %s", from, err, text)
	}
	return nil
}

func (e *fromExpectation) agrees(r *run, said *inspect.Explanation, replies []netlab.Reply) error {
	seen := map[netlab.Outcome]bool{}
	for _, rep := range replies[max(0, len(replies)-1):] {
		seen[rep.Outcome] = true
	}
	switch {
	case seen[netlab.Answered]:
		return e.namesBackends(r, said, replies)
	case seen[netlab.TimedOut] && said.Outcome == "drop", seen[netlab.Refused] && said.Outcome == "reject":
		return nil
	case said.Outcome == "none": // no Service claims the address, so the network itself answers, or does not
		return nil
	}
	return fmt.Errorf("it says %s, and %v was seen", said.Outcome, slices.Collect(maps.Keys(seen)))
}

// namesBackends checks that each backend that answered is named, and that no other is named if the scenario requires all of a list to answer.
func (e *fromExpectation) namesBackends(r *run, said *inspect.Explanation, replies []netlab.Reply) error {
	if said.Outcome == "none" && len(said.Keys) == 0 {
		return nil // directly to a pod or node
	}
	if said.Outcome != "forward" || len(said.Keys) != 1 || len(said.Keys[0].Ways) != 1 {
		return fmt.Errorf("it says %s, and there was an answer", said.Outcome)
	}
	way := said.Keys[0].Ways[0]
	if err := e.namesAll(r, way, replies); err != nil {
		return err
	}
	if way.Masquerade == inspect.Hairpin && way.Count > 1 || r.mode == userspace { // depends on the backend; never kept in userspace mode
		return nil
	}
	if kept := way.Masquerade == ""; e.answer.source == "preserved" && !kept || e.answer.source == "masqueraded" && kept {
		return fmt.Errorf("it says masquerade %q, and the source was %s", way.Masquerade, e.answer.source)
	}
	return nil
}

// namesAll checks that the named backends are those that answered, or could have answered.
func (e *fromExpectation) namesAll(r *run, way inspect.Way, replies []netlab.Reply) error {
	named, answered := map[string]bool{}, map[string]bool{}
	for _, b := range way.Backends {
		named[b.Addr] = true
	}
	for _, rep := range replies {
		if rep.Outcome != netlab.Answered {
			continue
		}
		answered[rep.Backend] = true
		if way.Count > len(way.Backends) { // the list is truncated
			continue
		}
		if err := isNamed(r.lab, named, rep); err != nil {
			return err
		}
	}
	who := strings.Join(slices.Sorted(maps.Keys(answered)), " ")
	if all := e.answer.kind == "backends" || e.answer.kind == "shares"; all && len(named) != len(e.answer.backends) {
		return fmt.Errorf("it names %d backends, and %s answered", len(named), who)
	}
	if len(answered) > len(named) {
		return fmt.Errorf("it names %d backends, and %s answered", len(named), who)
	}
	return nil
}

// isNamed returns an error if the answer came from none of the named backends.
func isNamed(lab *netlab.Lab, named map[string]bool, rep netlab.Reply) error {
	h, err := lab.Host(rep.Backend)
	if err != nil {
		return err
	}
	for _, a := range []netip.Addr{h.Addrs.V4, h.Addrs.V6} {
		if named[a.String()] || named[netip.AddrPortFrom(a, rep.Port).String()] {
			return nil
		}
	}
	return fmt.Errorf("%s:%d answered and is not named", rep.Backend, rep.Port)
}

// explainExpectation requires an outcome, and words that occur together in one line of the answer.
type explainExpectation struct {
	text, about, outcome string
	words                []string
}

func (e *explainExpectation) String() string { return e.text }

func (e *explainExpectation) check(ctx context.Context, r *run) error {
	asker, can := r.subject.(Explainer)
	if !can { // kube-proxy has no such command
		return nil
	}
	said, err := asker.Explain(ctx, e.about, netip.Addr{})
	if err != nil {
		return err
	}
	var text strings.Builder
	said.Text(&text)
	if said.Outcome != e.outcome {
		return fmt.Errorf("it says %s, want %s: %s", said.Outcome, e.outcome, text.String())
	}
	if err := findLine(text.String(), e.words, false); err != nil {
		return fmt.Errorf("%w: %s", err, text.String())
	}
	return nil
}
