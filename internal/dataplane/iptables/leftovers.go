package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// Owner is the program that owns chains.
type Owner uint8

// The owners.
const (
	Ours Owner = iota
	KubeProxys
)

// holding is the actual state of one family of a backend: the rules of each chain.
type holding struct {
	family  model.Family
	chains  map[chainRef][]string
	serving Owner // the owner of the chains whose names the agent and kube-proxy share
	kubelet bool
}

// Leftovers returns the number of chains of an owner in a backend, over the families that can be read; the error is about the others.
// The jump target in KUBE-POSTROUTING identifies the owner of the names that the agent shares
// with kube-proxy: the last writer writes it.
func Leftovers(ctx context.Context, k iptables.Kernel, o Owner) (chains int, err error) {
	for _, f := range bothFamilies {
		h, failed := hold(ctx, k, f)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		chains += len(h.of(o))
	}
	return chains, err
}

// removeTries is the maximum number of attempts of a removal that fails because other programs write concurrently.
const removeTries = 10

// RemoveLeftovers deletes the chains of an owner and the rules that jump to them,
// each table in one transaction. A chain to which another program's rule jumps is
// only flushed. A family without programs is skipped, because Leftovers has reported it; another error in one family does not stop the other one.
func RemoveLeftovers(ctx context.Context, k iptables.Kernel, o Owner) error {
	var problems []error
	for _, f := range bothFamilies {
		var err error
		for range removeTries {
			if err = removeOf(ctx, k, f, o); !errors.Is(err, iptables.ErrMoved) {
				break
			}
		}
		if err != nil && !errors.Is(err, iptables.ErrNoProgram) {
			problems = append(problems, fmt.Errorf("%s: %w", f, err))
		}
	}
	return errors.Join(problems...)
}

func removeOf(ctx context.Context, k iptables.Kernel, f model.Family, o Owner) error {
	stamp, err := k.Stamp(ctx)
	if err != nil {
		return err
	}
	h, err := hold(ctx, k, f)
	if err != nil {
		return err
	}
	goes := h.of(o)
	if len(goes) == 0 {
		return nil
	}
	text, commits := h.removal(goes)
	_, err = k.Restore(ctx, iptables.Restore{Family: kernelFamily(f), Input: []byte(text), Commits: commits, Expect: stamp})
	return err
}

// removal returns the iptables-restore input that removes these chains.
func (h *holding) removal(goes map[chainRef]bool) (text string, commits int) {
	var b strings.Builder
	refs := h.sorted()
	for _, t := range tables {
		var head, body, tail strings.Builder
		kept := map[string]bool{} // another program's rule jumps there
		for _, ref := range refs {
			if ref.table != t || goes[ref] {
				continue
			}
			for _, r := range h.chains[ref] {
				to := target(r)
				switch {
				case !goes[chainRef{h.family, t, to}]:
				case theirJump(ref.chain, r):
					fmt.Fprintf(&body, "-D %s %s\n", ref.chain, r)
				default:
					kept[to] = true
				}
			}
		}
		for _, ref := range refs {
			if ref.table == t && goes[ref] {
				fmt.Fprintf(&head, ":%s - [0:0]\n", ref.chain)
				if !kept[ref.chain] {
					fmt.Fprintf(&tail, "-X %s\n", ref.chain)
				}
			}
		}
		if head.Len() > 0 {
			fmt.Fprintf(&b, "*%s\n%s%s%sCOMMIT\n", t, head.String(), body.String(), tail.String())
			commits++
		}
	}
	return b.String(), commits
}

func (h *holding) sorted() []chainRef {
	var out []chainRef
	for ref := range h.chains {
		out = append(out, ref)
	}
	slices.SortFunc(out, func(a, b chainRef) int { return strings.Compare(a.id(), b.id()) })
	return out
}

// theirJump reports whether a rule that jumps to a chain to be removed was written by that chain's owner. All
// rules that the agent and kube-proxy write into built-in chains carry one of these
// comments, or none in kube-proxy's ipvs mode and kubelet's KUBE-FIREWALL.
func theirJump(chain, rule string) bool {
	if !builtIn(chain) {
		return strings.HasPrefix(chain, "KUBE-")
	}
	return strings.Contains(rule, `"kubernetes `) || strings.Contains(rule, `"kube-proxy `) || strings.Contains(rule, "localnet connections") ||
		strings.HasPrefix(rule, "-j KUBE-")
}

// target returns the chain that a rule jumps to, or "".
func target(rule string) string {
	for _, flag := range [...]string{"-j ", "-g "} {
		if i := strings.LastIndex(rule, flag); i >= 0 && !strings.Contains(rule[i+3:], " ") {
			return rule[i+3:]
		}
	}
	return ""
}

// hold reads the actual state of a family.
func hold(ctx context.Context, k iptables.Kernel, f model.Family) (*holding, error) {
	h := &holding{family: f, chains: map[chainRef][]string{}, serving: KubeProxys}
	for _, t := range tables {
		err := k.Save(ctx, kernelFamily(f), t.String(), func(line []byte) error {
			if name, ok := declared(line); ok {
				ref := chainRef{f, t, string(name)}
				h.chains[ref] = h.chains[ref][:0:0]
			} else if chain, rule, ok := splitRule(line); ok {
				ref := chainRef{f, t, string(chain)}
				h.chains[ref] = append(h.chains[ref], string(rule))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	post, some := h.chains[chainRef{f, nat, postrouting}]
	_, hairpin := h.chains[chainRef{f, nat, hairpinChain}]
	if hairpin && (!some || slices.ContainsFunc(post, func(r string) bool { return target(r) == hairpinChain })) {
		h.serving = Ours
	}
	_, hint := h.chains[chainRef{f, mangle, "KUBE-IPTABLES-HINT"}]
	_, canary := h.chains[chainRef{f, mangle, "KUBE-KUBELET-CANARY"}]
	h.kubelet = hint || canary
	return h, nil
}

// of returns an owner's chains.
func (h *holding) of(o Owner) map[chainRef]bool {
	out := map[chainRef]bool{}
	for ref, rules := range h.chains {
		if owner, known := h.ownerOf(ref, rules); known && owner == o {
			out[ref] = true
		}
	}
	return out
}

func (h *holding) ownerOf(ref chainRef, rules []string) (Owner, bool) {
	switch kind := kindOfChain(ref.table, ref.chain); {
	case kind == 0:
		return KubeProxys, kubeProxyOnly(ref) && !h.kubelets(ref, rules)
	case oursOnly(ref):
		return Ours, true
	}
	return h.serving, true
}

// oursOnly reports whether a chain that Load treats as owned has a name that no
// kube-proxy uses.
func oursOnly(ref chainRef) bool {
	for _, own := range [...]string{markOutside, rejectChain, hairpinChain, localnet, probeChain, dispatchMark, "KUBE-T-", "KUBE-N-", "KUBE-X-", "KUBE-W-", "KUBE-H-"} {
		if strings.HasPrefix(ref.chain, own) {
			return true
		}
	}
	return false
}

// kubeProxyOnly reports whether a chain that Load does not treat as owned is one of
// kube-proxy's: of its ipvs mode, of older releases, and the chain with its rule
// against packets for 127.0.0.0/8, which kubelet makes too.
func kubeProxyOnly(ref chainRef) bool {
	switch ref.chain {
	case "KUBE-MARK-DROP", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER",
		"KUBE-IPVS-OUT-FILTER", "KUBE-FIREWALL":
		return true
	}
	return false
}

// kubelets reports whether a chain may be kubelet's: it marks the node with chains of
// its own, and older ones make these too.
func (h *holding) kubelets(ref chainRef, rules []string) bool {
	switch ref.chain {
	case "KUBE-MARK-DROP", "KUBE-FIREWALL":
		more := slices.ContainsFunc(rules, func(r string) bool { return !strings.Contains(r, "block incoming localnet connections") })
		return h.kubelet || ref.table == filter && more
	}
	return false
}
