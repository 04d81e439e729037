package offload

import (
	"context"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// compare looks up single objects, on the goroutine of the caller and through a socket of its own. It stops at the first lookup that
// fails, and does nothing after a failed write until the retry succeeds: Status reports the failure, and the Services are served.
// The flowtable and its devices belong to no Service; the audit checks them.
func (s *side) compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) {
	st := s.status()
	if s.p.Finder == nil || st.Why != "" {
		return
	}
	s.looking.Lock()
	defer s.looking.Unlock()
	for i := range want {
		k := want[i].Key
		found, err := s.look(ctx, k)
		if err != nil {
			s.p.Log.Debug("cannot read the offload rules of a Service", "object", keyString(k), "error", err)
			return
		}
		full := k.Kind == kindMember && found == "" && st.Refused["full"] > 0
		if k.Kind != kindFlowtable && k.Kind != kindDevice && k.Kind != kindExcluded && found != want[i].Value && !full {
			differs(k, found)
		}
	}
}

// look returns the actual value of an object in the kernel.
func (s *side) look(ctx context.Context, k dataplane.Key) (string, error) {
	table := tableRef(k.Family)
	value := func(there bool, err error) (string, error) {
		if !there || err != nil {
			return "", err
		}
		return present, nil
	}
	switch k.Kind {
	case kindTable:
		row, there, err := s.p.Finder.Table(ctx, table)
		if text, _ := commentOf(row.UserData); there && err == nil {
			return text, nil
		}
		return value(false, err)
	case kindChain:
		row, there, err := s.p.Finder.Chain(ctx, table.Chain(k.ID))
		return value(there && sameHook(row.Hook, chainSpec(k.Family, k.ID).Hook), err)
	case kindSet:
		row, there, err := s.p.Finder.Set(ctx, table.Set(k.ID))
		spec, ours := setSpec(k.Family, k.ID)
		return value(there && ours && spec.Matches(row), err)
	case kindMember:
		set, key, _ := strings.Cut(k.ID, "|")
		_, there, err := s.p.Finder.Element(ctx, table.Set(set), &nft.Element{Key: []byte(key)})
		return value(there, err)
	case kindRule:
		var found []string
		for _, chain := range s.chainsOf(k.Family, k.ID) {
			rows, err := s.p.Finder.ChainRules(ctx, table.Chain(chain))
			if err != nil {
				return "", err
			}
			found = append(found, tagsIn(rows, chain, k.ID)...)
		}
		slices.Sort(found)
		return strings.Join(found, ", "), nil
	}
	return "", nil
}

// chainsOf returns the chains that contain the rules of an id.
func (s *side) chainsOf(f model.Family, id string) (out []string) {
	for _, r := range s.rules(f, id) {
		if !slices.Contains(out, r.Chain.Name) {
			out = append(out, r.Chain.Name)
		}
	}
	return out
}

// tagsIn returns the tags of the rules of an id in a chain, each with the name of the chain.
func tagsIn(rows []nft.Rule, chain, id string) (tags []string) {
	for i := range rows {
		text, _ := commentOf(rows[i].UserData)
		if of, ours := idOf(text); ours && of == id {
			tags = append(tags, placed(nft.ChainRef{Name: chain}, text))
		}
	}
	return tags
}
