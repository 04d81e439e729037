package inspect

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// maxElsewhere bounds OpenFlows.Elsewhere.
const maxElsewhere = 10

// TakeFlows adds the counted flows to the answer. err is why they are incomplete,
// nil if they are complete.
func (e *Explanation) TakeFlows(c *FlowCounter, took time.Duration, err error) {
	e.Flows = &OpenFlows{FlowCount: c.all, Took: took}
	if err != nil {
		e.Flows.Err = err.Error()
	}
	listed := map[flowEnd]bool{}
	for i := range e.Endpoints {
		r := &e.Endpoints[i]
		n := c.to[r.at]
		r.Flows, listed[r.at] = &n, true
	}
	for end, n := range c.to {
		if !listed[end] {
			e.Flows.Elsewhere = append(e.Flows.Elsewhere, FlowsTo{end.at.String() + "/" + end.protocol.String(), n})
		}
	}
	slices.SortFunc(e.Flows.Elsewhere, func(a, b FlowsTo) int {
		return cmp.Or(cmp.Compare(b.Open, a.Open), cmp.Compare(a.Addr, b.Addr))
	})
	if n := len(e.Flows.Elsewhere); n > maxElsewhere {
		e.Flows.Elsewhere, e.Flows.More = e.Flows.Elsewhere[:maxElsewhere], n-maxElsewhere
	}
}

func (n FlowCount) text() string {
	if n.Unanswered == 0 {
		return strconv.Itoa(n.Open)
	}
	return fmt.Sprintf("%d (%d unanswered)", n.Open, n.Unanswered)
}

func (o *OpenFlows) text(w io.Writer) {
	if o.Err != "" {
		fmt.Fprintf(w, "Flows      incomplete: %s\n", o.Err)
	}
	fmt.Fprintf(w, "Flows      %s open\n", o.FlowCount.text())
	for _, to := range o.Elsewhere {
		fmt.Fprintf(w, "Flows      %s to %s, which is not one of the endpoints below\n", to.text(), to.Addr)
	}
	if o.More > 0 {
		fmt.Fprintf(w, "Flows      and to %d more of those\n", o.More)
	}
}
