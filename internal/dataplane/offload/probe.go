package offload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Fault names a fault of a kernel release (uname -r) that breaks connections on the fast path; "" if none is known.
func Fault(release string) string {
	if major, minor := version(release); major == 6 && minor == 19 {
		return "in Linux 6.19 the fast path breaks TCP connections whose addresses are translated"
	}
	return ""
}

// Suspicion says why the fast path of a release is not to be trusted untried; "" if it is.
func Suspicion(release string) string {
	if major, minor := version(release); major > 6 || major == 6 && minor > 19 {
		return "Linux 6.19 breaks TCP connections whose addresses are translated on the fast path, and whether this release does is not known"
	}
	return Fault(release)
}

// version reads the first two numbers of a release; zeros if there are none.
func version(release string) (major, minor int) {
	var numbers [2]int
	for i := range numbers {
		digits := strings.IndexFunc(release, func(r rune) bool { return r < '0' || r > '9' })
		if digits < 0 {
			digits = len(release)
		}
		numbers[i], _ = strconv.Atoi(release[:digits]) // no digit: 0
		release = strings.TrimPrefix(release[digits:], ".")
	}
	return numbers[0], numbers[1]
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
		if err := s.try(ctx, f, append(s.rules(f, ""), s.rules(f, handOver)...)); err != nil {
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
	for _, name := range [...]string{chainName, take, handOver} {
		c := chainSpec(f, name)
		c.Ref.Table = t
		b.NewChain(c)
	}
	for _, name := range [...]string{nodeIPs, services, nodePorts, excluded} {
		spec, _ := setSpec(f, name)
		spec.Ref.Table = t
		b.NewSet(spec)
	}
	for _, r := range rules {
		r.Chain.Table = t
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
