package inspect

import (
	"slices"
	"sync"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// Notebook records the Services for which policy has a note that may surprise the
// operator. The engine writes it, and any goroutine may read it. A Service without
// notes costs nothing.
type Notebook struct {
	mu    sync.Mutex
	notes map[model.ServiceKey][]policy.Note
	count [policy.NumNoteKinds + 1]int // number of Services, by kind
}

// NewNotebook returns an empty Notebook.
func NewNotebook() *Notebook { return &Notebook{notes: map[model.ServiceKey][]policy.Note{}} }

// Set updates the notes of a Service. It returns the notes that are new, and
// whether any count changed.
func (n *Notebook) Set(key model.ServiceKey, notes []policy.Note) (news []policy.Note, changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.notes[key]
	if slices.Equal(old, notes) {
		return nil, false
	}
	for _, x := range notes {
		if !slices.Contains(old, x) {
			news = append(news, x)
		}
	}
	was, is := kinds(old), kinds(notes)
	for k := range n.count {
		if is[k] != was[k] {
			changed = true
			n.count[k] += map[bool]int{true: 1, false: -1}[is[k]]
		}
	}
	if len(notes) == 0 {
		delete(n.notes, key)
	} else {
		n.notes[key] = notes
	}
	return news, changed
}

func kinds(notes []policy.Note) (has [policy.NumNoteKinds + 1]bool) {
	for _, x := range notes {
		has[x.Kind] = true
	}
	return has
}

// Counts returns how many Services have a note of each kind that may surprise.
func (n *Notebook) Counts() map[policy.NoteKind]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[policy.NoteKind]int{}
	for k := policy.HintsUsed + 1; int(k) <= policy.NumNoteKinds; k++ {
		out[k] = n.count[k]
	}
	return out
}

// Summary returns the kinds that occur, with a few names each. It only reads Services
// that have notes.
func (n *Notebook) Summary(names int) []Noted {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Noted
	for k := policy.HintsUsed + 1; int(k) <= policy.NumNoteKinds; k++ {
		if n.count[k] == 0 {
			continue
		}
		x := Noted{Reason: k.String(), Services: n.count[k]}
		for key, notes := range n.notes {
			if kinds(notes)[k] {
				x.Some = first(x.Some, key.String(), names)
			}
		}
		out = append(out, x)
	}
	return out
}

// Unserved returns the Services that have endpoints of which none can be used here; nil: there are none. It only reads
// Services that have notes.
func (n *Notebook) Unserved(names int) *Noted {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := Noted{Reason: "endpoints that cannot be used on this node"}
	if n.count[policy.NotReady]+n.count[policy.NoneHere] == 0 {
		return nil
	}
	for key, notes := range n.notes {
		if has := kinds(notes); has[policy.NotReady] || has[policy.NoneHere] {
			out.Services++
			out.Some = first(out.Some, key.String(), names)
		}
	}
	return &out
}

// first keeps the lowest few of many, sorted.
func first(list []string, s string, most int) []string {
	at, _ := slices.BinarySearch(list, s)
	if at >= most {
		return list
	}
	list = slices.Insert(list, at, s)
	return list[:min(len(list), most)]
}
