package inspect

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
)

// Agreement is the result of comparing the objects of a Service in the data plane with
// their desired state, one by one.
type Agreement struct {
	Compared int      `json:"compared"`
	Of       int      `json:"of,omitempty"`     // number of objects, if not all were compared
	Differ   []string `json:"differ,omitempty"` // the first differences
	More     int      `json:"moreDiffer,omitempty"`
	Pending  int      `json:"pending,omitempty"` // not written yet; at least 1 for a change that waits for the next sync
	Err      string   `json:"error,omitempty"`   // the read failed
	// Recalled: nothing was read, because this kernel can only return single objects at the cost of
	// reading all.
	Recalled *Recalled `json:"recalled,omitempty"`
}

// Recalled is an Agreement from cached state.
type Recalled struct {
	Read  time.Time     `json:"read"`           // time of the last complete read
	Age   time.Duration `json:"ageNanoseconds"` // since that read
	Holds bool          `json:"holds"`          // no other program has written since
	How   string        `json:"how"`
	Blind string        `json:"blind,omitempty"` // limitation: what this method cannot detect
}

// Recall returns an Agreement from a driver's cached state. of is the number of objects of
// the Service.
func Recall(r dataplane.Recall, of, pending int, now time.Time) *Agreement {
	return &Agreement{Of: of, Pending: pending, Recalled: &Recalled{Read: r.Read, Age: now.Sub(r.Read), Holds: r.Holds, How: r.How, Blind: r.Blind}}
}

// notOthers: the comparison does not include rules of other programs, which a
// packet may meet first.
const notOthers = ", without rules of other programs"

func (r *Recalled) text(w io.Writer, of int) {
	what := "unconfirmed"
	if r.Holds {
		what = "agrees"
	}
	fmt.Fprintf(w, "In kernel  %s (%d objects%s): all rules were read %s ago; %s\n", what, of, notOthers, r.Age.Round(time.Second), r.How)
	if r.Blind != "" {
		fmt.Fprintf(w, "In kernel  %s\n", r.Blind)
	}
}

// Objects holds the objects that a Service's connections meet: its own, and the common
// objects of the same families.
type Objects struct {
	Written map[dataplane.Key]string
	Pending int
}

// ObjectsOf returns the Objects of a Service. Only the engine's goroutine may call
// it.
func ObjectsOf(k model.ServiceKey, v engine.View) Objects {
	own, waiting := v.Objects(k)
	base, late := v.Objects(model.ServiceKey{})
	out := Objects{Written: make(map[dataplane.Key]string, len(own)+len(base)), Pending: len(waiting)}
	if v.Undecided(k) {
		out.Pending++ // at least one
	}
	families := map[model.Family]bool{}
	for _, list := range [...][]dataplane.Object{own, waiting} {
		for i := range list {
			families[list[i].Key.Family] = true
		}
	}
	for i := range late {
		if families[late[i].Key.Family] {
			out.Pending++
		}
	}
	for i := range own {
		out.Written[own[i].Key] = own[i].Value
	}
	for i := range base {
		if families[base[i].Key.Family] {
			out.Written[base[i].Key] = base[i].Value
		}
	}
	return out
}

// List returns the objects, ordered by kind.
func (o Objects) List() []dataplane.Object {
	out := make([]dataplane.Object, 0, len(o.Written))
	for k, v := range o.Written {
		out = append(out, dataplane.Object{Key: k, Value: v})
	}
	slices.SortFunc(out, func(a, b dataplane.Object) int { return compareKeys(a.Key, b.Key) })
	return out
}

func compareKeys(a, b dataplane.Key) int {
	switch {
	case a.Kind != b.Kind:
		return int(a.Kind) - int(b.Kind)
	case a.Family != b.Family:
		return int(a.Family) - int(b.Family)
	case a.ID < b.ID:
		return -1
	case a.ID > b.ID:
		return 1
	}
	return 0
}

// mostCompared bounds how many objects one comparison reads. Each takes a tenth of a
// millisecond.
const mostCompared = 4096

// Sample returns the objects to compare, ordered by kind: all objects, or an even sample if there are
// more than mostCompared.
func (o Objects) Sample() []dataplane.Object {
	all := o.List()
	if len(all) <= mostCompared {
		return all
	}
	out := make([]dataplane.Object, mostCompared)
	for i := range out {
		out[i] = all[i*len(all)/mostCompared]
	}
	return out
}

// maxDiffer is how many differences an answer lists.
const maxDiffer = 5

// Differs records one difference. If gone is true, the object does not exist at
// all.
func (a *Agreement) Differs(name string, gone bool) {
	if len(a.Differ) >= maxDiffer {
		a.More++
		return
	}
	how := " differs from the desired state"
	if gone {
		how = " is missing"
	}
	a.Differ = append(a.Differ, name+how)
}

// Take adds an Agreement to the answer.
func (e *Explanation) Take(a *Agreement) {
	e.Kernel = a
	if len(a.Differ) == 0 {
		return
	}
	if e.Well {
		e.Summary += fmt.Sprintf(", but another program changed its rules: %s", a.Differ[0])
	}
	e.Well = false
}

func (a *Agreement) text(w io.Writer) {
	switch {
	case a.Recalled != nil:
		a.Recalled.text(w, a.Of)
	case a.Err != "":
		fmt.Fprintf(w, "In kernel  unknown: %s\n", a.Err)
	case len(a.Differ) > 0:
		for _, d := range a.Differ {
			fmt.Fprintf(w, "In kernel  DIFFERS: %s\n", d)
		}
		if a.More > 0 {
			fmt.Fprintf(w, "In kernel  and %d more of %d\n", a.More, a.Compared)
		}
	case a.Of > 0:
		fmt.Fprintf(w, "In kernel  agrees (%d of %d objects compared%s)\n", a.Compared, a.Of, notOthers)
	default:
		fmt.Fprintf(w, "In kernel  agrees (%d objects compared%s)\n", a.Compared, notOthers)
	}
	if a.Pending > 0 {
		fmt.Fprintf(w, "In kernel  %d objects are pending\n", a.Pending)
	}
}
