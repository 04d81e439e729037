package iptables

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// The endings of the comments of rules that reject or drop, after the name of the Service port.
const (
	saysNone     = " has no endpoints"
	saysNoneHere = " has no local endpoints"
	saysSource   = " traffic not accepted by source ranges"
)

// Refusal is how many packets the rules of one Service port have rejected or dropped since they were written.
type Refusal struct {
	Service model.ServiceKey
	Port    string
	Dropped bool // dropped, not rejected
	Packets uint64
}

// Counts reads a table with its counters.
type Counts interface {
	Counted(ctx context.Context, f kernel.Family, table string, emit func(line []byte) error) error
}

// Refusals reads the counters of the rules that reject and drop; the kernel always counts at each rule. A Service port
// may come more than once. One whose name is so long that its rules show a part of it does not come.
func Refusals(ctx context.Context, k Counts, emit func(Refusal)) error {
	for _, f := range [...]kernel.Family{kernel.IPv4, kernel.IPv6} {
		err := k.Counted(ctx, f, "filter", func(line []byte) error {
			if r, ok := refusalOf(line); ok {
				emit(r)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the rejected rules: %w", err)
		}
	}
	return nil
}

// refusalOf reads `[5:300] -A CHAIN ... --comment "shop/web:http has no endpoints" ... -j REJECT`.
func refusalOf(line []byte) (r Refusal, ok bool) {
	count, rule, ok := bytes.Cut(line, []byte("] -A KUBE-"))
	if !ok || len(count) == 0 {
		return r, false
	}
	packets, _, _ := bytes.Cut(count[1:], []byte(":"))
	n, err := strconv.ParseUint(string(packets), 10, 64)
	_, comment, is := strings.Cut(string(rule), `--comment "`)
	comment, _, closed := strings.Cut(comment, `"`)
	if err != nil || !is || !closed {
		return r, false
	}
	for _, says := range [...]string{saysNone, saysNoneHere, saysSource} {
		name, found := strings.CutSuffix(comment, says)
		namespace, name, full := strings.Cut(name, "/")
		if !found || !full {
			continue
		}
		r.Service.Namespace, r.Dropped, r.Packets = namespace, says != saysNone, n
		r.Service.Name, r.Port, _ = strings.Cut(name, ":")
		return r, true
	}
	return r, false
}
