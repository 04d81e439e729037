package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/test/netlab"
)

// ruleset is the output of `nft -j list ruleset` for Fairlead's tables, without what may differ between two agents in the same state:
// handles, sizes, packet counts, entries that packets add to the maps of clients, and which slot holds which endpoint.
type ruleset struct {
	elements map[string][]string // by "table set"
	chains   map[string][]string // rules, by "table chain"
	leads    map[string][]string // chains to which a chain's rules, or ("") hooks and elements, jump
	broken   []string            // pools with a hole
}

var warnings = regexp.MustCompile(`(?m)^warning: .*$`)

var packets = regexp.MustCompile(`"(packets|bytes)":\d+`)

func dump(ctx context.Context, h *netlab.Host) (*ruleset, error) {
	out, err := h.Run(ctx, "nft", "-j", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	var all struct {
		Nftables []map[string]json.RawMessage `json:"nftables"`
	}
	// nft 1.0.6 cannot print `update @map` as JSON, and prints a warning. The comment of the rule, its digest, is in the output nevertheless.
	out = warnings.ReplaceAllString(out, "")
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("read nft's JSON: %w", err)
	}
	r := &ruleset{elements: map[string][]string{}, chains: map[string][]string{}, leads: map[string][]string{}}
	for _, item := range all.Nftables {
		for kind, raw := range item {
			if err := r.add(kind, raw); err != nil {
				return nil, fmt.Errorf("read a %s of nft's JSON: %w", kind, err)
			}
		}
	}
	return r, nil
}

// object is the part of nft's objects that is compared.
type object struct {
	Family, Table, Name, Chain, Comment string
	Type, Hook                          any
	Prio                                any
	Elem                                []json.RawMessage
	Expr                                json.RawMessage
}

func (r *ruleset) add(kind string, raw json.RawMessage) error {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil || o.Table != "fairlead" {
		return err
	}
	at := o.Family + " " + o.Name
	switch kind {
	case "chain":
		r.chains[at] = append(r.chains[at], fmt.Sprint(o.Type, o.Hook, o.Prio))
		if o.Hook != nil {
			r.leads[""] = append(r.leads[""], at)
		}
	case "rule":
		from := o.Family + " " + o.Chain
		text := packets.ReplaceAllString(compact(o.Expr), `"$1":0`) + o.Comment
		r.chains[from] = append(r.chains[from], text)
		r.follow(from, o.Family, o.Expr)
	case "set", "map":
		if strings.HasPrefix(o.Name, "clients/") {
			r.elements[at] = []string{} // packets fill it
			return nil
		}
		r.elements[at] = []string{}
		if o.Name == "eps" || strings.HasPrefix(o.Name, "eps-") || strings.HasSuffix(o.Name, "-eps") {
			return r.pool(at, o.Elem)
		}
		for _, e := range o.Elem {
			r.elements[at] = append(r.elements[at], compact(e))
			r.follow("", o.Family, e)
		}
		slices.Sort(r.elements[at])
	}
	return nil
}

// hashBase is the first slot of a table of consistent hash.
const hashBase = 1 << 16

// pool reads the slots of one map of endpoints: how often each Frontend has each endpoint, and whether a Frontend's slots have a hole. In a
// table of consistent hash the positions of the slots are compared as well.
func (r *ruleset) pool(at string, elems []json.RawMessage) error {
	slots := map[string][]int{}
	for _, raw := range elems {
		var pair []struct{ Concat []any }
		if err := json.Unmarshal(raw, &pair); err != nil || len(pair) != 2 || len(pair[0].Concat) < 2 {
			return fmt.Errorf("element %s of %s: %w", raw, at, err)
		}
		key := pair[0].Concat
		n, ok := key[len(key)-1].(float64)
		if !ok {
			return fmt.Errorf("element %s of %s ends with no slot", raw, at)
		}
		front := fmt.Sprint(key[:len(key)-1])
		if n >= hashBase {
			front += fmt.Sprint(" place ", n-hashBase)
		} else {
			slots[front] = append(slots[front], int(n))
		}
		r.elements[at] = append(r.elements[at], front+" "+fmt.Sprint(pair[1].Concat))
	}
	for front, list := range slots {
		slices.Sort(list)
		if list[len(list)-1] != len(list)-1 {
			r.broken = append(r.broken, fmt.Sprintf("%s %s has slots %v", at, front, list))
		}
	}
	slices.Sort(r.elements[at])
	return nil
}

var target = regexp.MustCompile(`"target":"([^"]+)"`)

func (r *ruleset) follow(from, family string, raw json.RawMessage) {
	for _, m := range target.FindAllStringSubmatch(compact(raw), -1) {
		if to := family + " " + m[1]; !slices.Contains(r.leads[from], to) {
			r.leads[from] = append(r.leads[from], to)
		}
	}
}

// used returns the chains that packets can reach.
func (r *ruleset) used() map[string]bool {
	out := map[string]bool{}
	for todo := []string{""}; len(todo) > 0; todo = todo[1:] {
		for _, c := range r.leads[todo[0]] {
			if !out[c] {
				out[c] = true
				todo = append(todo, c)
			}
		}
	}
	return out
}

func compact(raw json.RawMessage) string {
	return strings.NewReplacer(" ", "", "\n", "").Replace(string(raw))
}

// differences returns what the agent's actual rule set has that a fresh one has not, and the reverse. Shared chains without a reference are
// kept for a while on purpose (kernels before 6.2; and a new chain costs a walk through the map). They are counted and are not differences.
func differences(have, want *ruleset) (list []string, unused int) {
	usedHave, usedWant := have.used(), want.used()
	for at := range union(have.chains, want.chains) {
		h, w := have.chains[at], want.chains[at]
		switch {
		case w == nil && !usedHave[at] || h == nil && !usedWant[at]:
			unused++
		case !slices.Equal(h, w):
			list = append(list, fmt.Sprintf("chain %s: %d rules, from scratch %d, or not the same", at, len(h), len(w)))
		}
	}
	for at := range union(have.elements, want.elements) {
		for _, e := range minus(have.elements[at], want.elements[at]) {
			list = append(list, fmt.Sprintf("%s has %s", at, e))
		}
		for _, e := range minus(want.elements[at], have.elements[at]) {
			list = append(list, fmt.Sprintf("%s lacks %s", at, e))
		}
	}
	list = append(list, have.broken...)
	slices.Sort(list)
	return list, unused
}

func union(a, b map[string][]string) map[string]bool {
	out := map[string]bool{}
	for k := range maps.Keys(a) {
		out[k] = true
	}
	for k := range maps.Keys(b) {
		out[k] = true
	}
	return out
}

// minus returns the elements of a that are not in b, as multisets; both are sorted.
func minus(a, b []string) (out []string) {
	left := map[string]int{}
	for _, x := range b {
		left[x]++
	}
	for _, x := range a {
		if left[x]--; left[x] < 0 {
			out = append(out, x)
		}
	}
	return out
}
