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

// Fault returns the known fault of a kernel release (uname -r) that breaks connections on the fast path; "" if none is known.
func Fault(release string) string {
	if major, minor := version(release); major == 6 && minor == 19 {
		return "Linux 6.19 breaks TCP connections with translated addresses on the fast path"
	}
	return ""
}

// Suspicion returns why the fast path of a release must be tested before use; "" if it need not be.
func Suspicion(release string) string {
	if major, minor := version(release); major > 6 || major == 6 && minor > 19 {
		return "Linux 6.19 breaks TCP connections with translated addresses on the fast path; whether this release does is unknown"
	}
	return Fault(release)
}

// version returns the first two numbers of a release; zeros if there are none.
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

// probe tests what the kernel supports, in transactions that leave no object. It returns why there is no acceleration although it
// was requested; "" otherwise.
func (s *side) probe(ctx context.Context, usable []model.Family) (why string) {
	if s.p.Threshold == 0 {
		return s.p.Off
	}
	var problem error
	for _, f := range usable {
		if err := s.try(ctx, f, nil); err != nil { // no rule yet: a rule would enable conntrack's packet counters, at a cost
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
		why = fmt.Sprintf("the kernel rejects a flowtable: %v", problem)
		s.tell(func(st *Status) { st.Threshold, st.Why = 0, why })
	default:
		why = fmt.Sprintf("only %v is: the kernel rejects a flowtable of the other family: %v", s.served, problem)
	}
	return why
}

// try creates the necessary objects, with these rules, in one transaction that deletes them again.
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

// Remove deletes the tables of this package, of any process, in the network namespace of the kernel client's socket. It is idempotent.
func Remove(ctx context.Context, k nft.Kernel) error {
	tables, err := k.Tables(ctx)
	switch {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT):
		return nil // a kernel without nf_tables has no table to remove
	case err != nil:
		return fmt.Errorf("remove the offload tables: %w", err)
	}
	var b nft.Batch
	for i := range tables {
		if text, _ := commentOf(tables[i].UserData); IsTable(tables[i].Ref) && strings.HasPrefix(text, "fairlead-offload ") {
			b.NewTable(tables[i].Ref, nil) // changes nothing; the kernel echoes it
			b.DelTable(tables[i].Ref)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if _, err := k.Commit(ctx, &b); err != nil {
		return fmt.Errorf("remove the offload tables: %w", err)
	}
	return nil
}
