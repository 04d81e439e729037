package offload

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Fault names a fault of a kernel release (uname -r) for which connections must not be taken past the rules; "" if none is known.
func Fault(release string) string {
	for version, fault := range map[string]string{
		"6.19": "in Linux 6.19 the fast path breaks TCP connections whose addresses are translated",
	} {
		if rest, is := strings.CutPrefix(release, version); is && (rest == "" || rest[0] < '0' || rest[0] > '9') {
			return fault
		}
	}
	return ""
}

// probe finds out by trying what the kernel can do, leaves no trace, and says why there is no acceleration if it was asked for.
func (s *side) probe(ctx context.Context, usable []model.Family) (why string) {
	if s.p.Threshold == 0 {
		return s.p.Off
	}
	var problem error
	for _, f := range usable {
		if err := s.try(ctx, f, nil); err != nil { // a rule would make conntrack count, and not for nothing
			problem = err
			continue
		}
		if s.p.Prepare != nil && len(s.served) == 0 {
			s.p.Prepare()
		}
		if err := s.try(ctx, f, s.rules(f, "")); err != nil {
			problem = err
			continue
		}
		s.served = append(s.served, f)
	}
	switch {
	case problem == nil:
		return ""
	case len(s.served) == 0:
		why = fmt.Sprintf("the kernel refuses a flowtable: %v", problem)
		s.tell(func(st *Status) { st.Threshold, st.Why = 0, why })
	default:
		why = fmt.Sprintf("only %v is: the kernel refuses a flowtable of the other family: %v", s.served, problem)
	}
	return why
}

// try makes what is needed, and these rules, in one transaction that takes it away again.
func (s *side) try(ctx context.Context, f model.Family, rules []nft.RuleSpec) error {
	t := nft.TableRef{Family: kernelFamily(f), Name: tableName + "-probe"}
	var b nft.Batch
	b.NewTable(t, nil)
	b.NewFlowtable(nft.Flowtable{Ref: t.Set(flowtable), Counter: true})
	b.NewChain(nft.ChainSpec{Ref: t.Chain(chainName), Hook: hook()})
	for _, name := range [...]string{nodeIPs, services, nodePorts} {
		spec, _ := setSpec(f, name)
		spec.Ref.Table = t
		b.NewSet(spec)
	}
	for _, r := range rules {
		r.Chain = t.Chain(chainName)
		b.NewRule(r)
	}
	b.DelTable(t)
	_, err := s.p.Kernel.Commit(ctx, &b)
	var refused *nft.BatchError
	if errors.As(err, &refused) {
		return refused.Errno
	}
	return err
}

// Remove deletes what any run has left, in the namespace of the kernel's socket. Idempotent.
func Remove(ctx context.Context, k nft.Kernel) error {
	tables, err := k.Tables(ctx)
	switch {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT):
		return nil // a kernel without nf_tables holds nothing of ours
	case err != nil:
		return fmt.Errorf("remove the acceleration: %w", err)
	}
	var b nft.Batch
	for i := range tables {
		if text, _ := commentOf(tables[i].UserData); IsTable(tables[i].Ref) && strings.HasPrefix(text, "fairlead-offload ") {
			b.NewTable(tables[i].Ref, nil) // changes nothing, and is what the kernel echoes
			b.DelTable(tables[i].Ref)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if _, err := k.Commit(ctx, &b); err != nil {
		return fmt.Errorf("remove the acceleration: %w", err)
	}
	return nil
}
