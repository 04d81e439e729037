package convert

import (
	"fmt"

	"github.com/fairlead/fairlead/internal/model"
)

// maxProblems bounds how many Problems one object may report: an EndpointSlice with
// 1000 bad endpoints is one mistake, not 1000 lines.
const maxProblems = 10

// report collects the Problems of one object.
type report struct {
	kind, namespace, name string // namespace is "" for a cluster-scoped object

	problems []model.Problem
	more     int
}

// object returns "Service default/web".
func (r *report) object() string {
	if r.namespace == "" {
		return r.kind + " " + r.name
	}
	return r.kind + " " + r.namespace + "/" + r.name
}

func (r *report) add(field, format string, args ...any) {
	if len(r.problems) >= maxProblems {
		r.more++
		return
	}
	r.problems = append(r.problems, model.Problem{
		Object: r.object(), Field: field, Reason: fmt.Sprintf(format, args...),
	})
}

// done returns the Problems. If some were left out, the last one states their
// number.
func (r *report) done() []model.Problem {
	if r.more > 0 {
		r.problems = append(r.problems, model.Problem{
			Object: r.object(), Reason: fmt.Sprintf("%d more problems of this object are not listed", r.more),
		})
	}
	return r.problems
}

// at returns the path of one entry of a list: "spec.externalIPs[2]".
func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// in returns the path of a field of one entry of a list: "spec.ports[0].port".
func in(field string, i int, sub string) string { return fmt.Sprintf("%s[%d].%s", field, i, sub) }
