package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
)

// Status is the answer of `fairlead status`.
type Status struct {
	Version string `json:"version"`
	Mode    string `json:"mode"`
	ModeBy  string `json:"modeBy,omitempty"` // what chose it if the settings do not specify it: "default" or "auto"
	// Place is the mode with the backend of iptables: an argument of `fairlead migrate
	// --to`.
	Place string    `json:"place"`
	Node  string    `json:"node"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
	Now   time.Time `json:"now"`

	// Changed is the last change of mode by `fairlead migrate`; nil: there was none.
	Changed  *Changed `json:"changed,omitempty"`
	Source   Source   `json:"source"`
	Services int      `json:"services"`
	Slices   int      `json:"slices"`
	Kernel   InKernel `json:"kernel"`
	// NodePorts is where NodePorts answer; nil: not decided yet, or the mode answers on loopback addresses only.
	NodePorts *NodePorts `json:"nodePorts,omitempty"`
	Limits    []string   `json:"limits,omitempty"` // limitations of this kernel or host, such as a family that is not served
	Repairs   Repairs    `json:"repairs"`
	Flows     *Flows     `json:"conntrack,omitempty"` // nil: the kernel reports nothing
	Offload   *Offload   `json:"offload,omitempty"`   // nil: acceleration was not requested
	Also      []Stranger `json:"alsoHere,omitempty"`
	Refused   []Refused  `json:"refused,omitempty"`
	Problems  []string   `json:"problems,omitempty"` // the first of them
	Troubled  int        `json:"problemCount"`
	// NotListening lists why servers of the agent (healthz, metrics) do not listen, one line each.
	NotListening []string `json:"notListening,omitempty"`
	Noted        []Noted  `json:"noted,omitempty"` // Services that need attention, by reason
	History      *History `json:"history,omitempty"`
}

// Source is the source of the Services.
type Source struct {
	Name      string    `json:"name"` // "API server" or "folder DIR"
	Connected bool      `json:"connected"`
	LastHeard time.Time `json:"lastHeard,omitzero"`
	Since     time.Time `json:"since,omitzero"` // time of the last change of Connected
	Err       string    `json:"error,omitempty"`
	Waiting   []string  `json:"waiting,omitempty"` // sources that have not delivered everything yet
}

// InKernel reports whether the desired state is in the kernel.
type InKernel struct {
	Synced  time.Time     `json:"synced,omitzero"` // last time that everything was in sync; zero: never yet
	Took    time.Duration `json:"tookNanoseconds"`
	Healthy bool          `json:"healthy"`
	Pending int           `json:"pending"`
	Err     string        `json:"error,omitempty"` // of the last attempt
	Busy    bool          `json:"busy,omitempty"`  // the engine is busy and cannot answer now
}

// NodePorts is the addresses on which NodePorts answer, and the reason.
type NodePorts struct {
	On []netip.Addr `json:"on"`
	By string       `json:"by"`
}

// NodePortsOf returns the decision of policy; nil if there is none yet.
func NodePortsOf(v *model.NodeView) *NodePorts {
	if v.NodePortsBy == "" {
		return nil
	}
	return &NodePorts{On: v.NodePortAddrs, By: v.NodePortsBy}
}

// maxNodePortAddrs is how many addresses the text lists.
const maxNodePortAddrs = 8

// Where returns the addresses as text: "192.0.2.1, 2001:db8::1", or "nowhere".
func (n *NodePorts) Where() string {
	if len(n.On) == 0 {
		return "nowhere"
	}
	var out []string
	for _, a := range n.On[:min(len(n.On), maxNodePortAddrs)] {
		out = append(out, a.String())
	}
	if more := len(n.On) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}

// Repairs counts repaired drift: changes by other programs to rules that the agent
// owns.
type Repairs struct {
	Objects int       `json:"objects"`
	Last    time.Time `json:"last,omitzero"`
	First   string    `json:"first,omitempty"` // object of the last repair
	Audited time.Time `json:"audited,omitzero"`
}

// Flows holds the numbers of conntrack.
type Flows struct {
	Count        uint64 `json:"count"`
	Max          uint64 `json:"max"`
	InsertFailed uint64 `json:"insertFailed"` // since boot; flows that could not be inserted, usually because of port collisions
	Dropped      uint64 `json:"dropped"`      // since boot, because the table was full
}

// Filling reports whether the alert FairleadConntrackFull is raised (deploy/monitoring/rules.yaml).
func (f *Flows) Filling() bool { return f != nil && f.Max > 0 && f.Count*10 > f.Max*8 }

// Full reports whether new connections fail, or will soon, because the table is
// full.
func (f *Flows) Full() bool { return f != nil && f.Max > 0 && f.Count*10 >= f.Max*9 }

// Stranger is the table of another proxy on this node.
type Stranger struct {
	What string `json:"what"`
	// Wins reports that the other table was hooked later than the agent's. If
	// two tables translate a connection, the one that was hooked last is
	// evaluated first.
	Wins   bool   `json:"wins"`
	Unsure bool   `json:"unsure,omitempty"` // the order is unknown
	Remove string `json:"remove,omitempty"` // the command that removes it
}

// RefusedOf returns the Refused of a quarantined Service of the engine.
func RefusedOf(h engine.Held) Refused {
	return Refused{Service: h.Service.String(), Objects: h.Objects, Err: h.Err.Error(), Since: h.Since, RetryAt: h.RetryAt}
}

func (r *Refused) text() string {
	return fmt.Sprintf("%s (%s), quarantined since %s, next retry %s", strings.Join(r.Objects, ", "), r.Err, clock(r.Since), clock(r.RetryAt))
}

// Refused is a Service that the kernel refused.
type Refused struct {
	Service string    `json:"service"`
	Objects []string  `json:"objects"`
	Err     string    `json:"error"`
	Since   time.Time `json:"since"`
	RetryAt time.Time `json:"retryAt"`
}

// Noted counts Services by the reason of their notes.
type Noted struct {
	Reason   string   `json:"reason"`
	Services int      `json:"services"`
	Some     []string `json:"some"` // names of some of them
}

// Unwell returns what needs attention, worst first, one line each.
func (s *Status) Unwell() []string {
	var out []string
	add := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	switch {
	case s.Kernel.Synced.IsZero() && len(s.Source.Waiting) > 0:
		add(true, "the first sync is not complete: still waiting for %s", list(s.Source.Waiting))
	case s.Kernel.Synced.IsZero():
		add(true, "the first sync is not complete")
	}
	add(s.Kernel.Err != "", "the last write failed: %s", s.Kernel.Err)
	add(!s.Kernel.Healthy && s.Kernel.Err == "", "pending changes are not written to the kernel in time")
	add(!s.Source.Connected, "%s: %s", s.Source.Name, orElse(s.Source.Err, "not connected"))
	add(s.Flows.Full(), "conntrack is full: %d of %d flows", flows(s.Flows).Count, flows(s.Flows).Max)
	for _, a := range s.Also {
		add(a.Wins, "%s takes precedence over fairlead's rules (its hooks were registered later)", a.What)
		add(a.Unsure, "%s may take precedence over fairlead's rules", a.What)
	}
	add(len(s.Refused) > 0, "the kernel rejected the rules of %s", services(len(s.Refused)))
	add(len(s.NotListening) == 1, "1 server of the agent is not listening")
	add(len(s.NotListening) > 1, "%d servers of the agent are not listening", len(s.NotListening))
	add(s.Troubled == 1, "1 problem")
	add(s.Troubled > 1, "%d problems", s.Troubled)
	return out
}

func flows(f *Flows) Flows {
	if f == nil {
		return Flows{}
	}
	return *f
}

func list(words []string) string {
	sorted := slices.Sorted(slices.Values(words))
	out := ""
	for i, w := range sorted {
		if i > 0 {
			out += ", "
		}
		out += w
	}
	return out
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
