package inspect

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Texter is an answer that can be written as text.
type Texter interface{ Text(w io.Writer) }

// Text writes the status block.
func (s *Status) Text(w io.Writer) {
	mode := s.Mode
	if s.ModeBy != "" {
		mode += " (" + s.ModeBy + ")"
	}
	fmt.Fprintf(w, "fairlead %s  mode %s  node %s  up %s  pid %d\n", s.Version, mode, s.Node, age(s.Now.Sub(s.Since)), s.PID)
	if s.Changed != nil {
		fmt.Fprintf(w, "%-12s %s\n", "Mode changed", s.Changed.text())
	}
	fmt.Fprintf(w, "%-12s %s%sservices %s  slices %s\n", "Source", pad(s.Source.text(s.Now), 48), "  ", number(s.Services), number(s.Slices))
	fmt.Fprintf(w, "%-12s %s  pending %d  refused %d  problems %d\n", "In kernel", pad(s.Kernel.text(), 48), s.Kernel.Pending, len(s.Refused), s.Troubled)
	s.NodePorts.text(w)
	for _, l := range s.Limits {
		fmt.Fprintf(w, "%-12s %s\n", "Limit", l)
	}
	fmt.Fprintf(w, "%-12s %s\n", "Repaired", s.Repairs.text())
	if f := s.Flows; f != nil && f.Max > 0 {
		warn := ""
		switch {
		case f.Full():
			warn = "  FULL: new connections fail"
		case f.Filling():
			warn = "  WARN: new connections fail when it is full"
		}
		fmt.Fprintf(w, "%-12s %s of %s (%d %%)%s  insert_failed %d  dropped %d\n", "Conntrack", number(int(f.Count)), number(int(f.Max)), f.Count*100/f.Max, warn, f.InsertFailed, f.Dropped)
	}
	if s.Offload != nil {
		fmt.Fprintf(w, "%-12s %s\n", "Accelerated", s.Offload.text())
	}
	for _, a := range s.Also {
		fmt.Fprintf(w, "%-12s %s\n", "Also here", a.text())
	}
	for _, r := range s.Refused {
		fmt.Fprintf(w, "%-12s %s: %s\n", "Refused", r.Service, r.text())
	}
	for _, p := range slices.Concat(s.NotListening, s.Problems) {
		fmt.Fprintf(w, "%-12s %s\n", "Problem", p)
	}
	if more := s.Troubled - len(s.Problems); more > 0 {
		fmt.Fprintf(w, "%-12s and %d more\n", "", more)
	}
	for _, n := range s.Noted {
		fmt.Fprintf(w, "%-12s %s: %s, such as %s\n", "Noted", n.Reason, services(n.Services), strings.Join(n.Some, ", "))
	}
	for i, u := range s.Unwell() {
		fmt.Fprintf(w, "%-12s %s\n", map[bool]string{true: "NOT WELL"}[i == 0], u)
	}
}

func (n *NodePorts) text(w io.Writer) {
	if n != nil {
		fmt.Fprintf(w, "%-12s %s (%s)\n", "NodePorts", n.Where(), n.By)
	}
}

func (s *Source) text(now time.Time) string {
	out := s.Name
	switch {
	case !s.Connected && s.Err != "":
		return out + ": " + s.Err
	case !s.Connected:
		return out + ": not connected"
	case len(s.Waiting) > 0:
		return out + ", waiting for " + list(s.Waiting)
	case s.LastHeard.IsZero():
		return out
	}
	return fmt.Sprintf("%s, connected, last heard %s ago", out, age(now.Sub(s.LastHeard)))
}

func (k *InKernel) text() string {
	busy := ""
	if k.Busy {
		busy = "; the engine is busy"
	}
	switch {
	case k.Synced.IsZero() && k.Err == "":
		return "not yet" + busy
	case k.Err != "":
		return "no: " + k.Err + busy
	case !k.Healthy:
		return "late, since " + clock(k.Synced) + busy
	}
	return fmt.Sprintf("yes, since %s (took %s)%s", clock(k.Synced), k.Took.Round(10*time.Microsecond), busy)
}

func (r *Repairs) text() string {
	out := "nothing"
	if r.Objects > 0 {
		out = fmt.Sprintf("%d objects, last %s (%s)", r.Objects, clock(r.Last), r.First)
	}
	if !r.Audited.IsZero() {
		out += "   last audit " + clock(r.Audited)
	}
	return out
}

func (a *Stranger) text() string {
	who := "fairlead takes precedence"
	if a.Unsure {
		who = "the order of the hooks is unknown"
	}
	if a.Wins {
		who = "TAKES PRECEDENCE (its hooks were registered later)"
	}
	if a.Remove == "" {
		return a.What + ": " + who
	}
	return a.What + ": " + who + "; remove with: " + a.Remove
}

// Text writes the explanation.
func (e *Explanation) Text(w io.Writer) {
	fmt.Fprintln(w, e.Summary)
	if e.From != nil {
		fmt.Fprintf(w, "From %s\n", e.From)
	}
	if e.Refused != nil {
		fmt.Fprintf(w, "Refused    %s\n", e.Refused.text())
	}
	for _, n := range e.Notes {
		fmt.Fprintf(w, "Why        %s\n", n)
	}
	for _, p := range e.Problems {
		fmt.Fprintf(w, "Problem    %s\n", p)
	}
	for _, d := range e.Defaults {
		fmt.Fprintf(w, "Default    %s\n", d)
	}
	if e.FastPath != "" {
		fmt.Fprintf(w, "Fast path  %s\n", e.FastPath)
	}
	if e.Kernel != nil {
		e.Kernel.text(w)
	}
	if e.Flows != nil {
		e.Flows.text(w)
	}
	if len(e.Keys) > 0 {
		e.keys(w)
	}
	if len(e.Endpoints) > 0 {
		e.rows(w)
	}
}

func (e *Explanation) keys(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, " key\tkind\tverdict\tto")
	before := ""
	for i := range e.Keys[:min(len(e.Keys), maxListed)] {
		k := &e.Keys[i]
		for j := range k.Ways {
			name, kind := k.Key, k.Kind
			if j > 0 {
				name, kind = "", ""
			}
			to := k.Ways[j].text()
			if to == before && k.Ways[j].Count > 1 {
				to = "the same"
			} else {
				before = to
			}
			fmt.Fprintf(t, " %s\t%s\t%s\t%s\n", name, kind, verdict(k.Ways[j].Verdict), to)
		}
		if len(k.At) > 0 {
			fmt.Fprintf(t, " \t\t\tthe agent listens on %s\n", strings.Join(k.At, " "))
		}
		for _, a := range k.Also {
			fmt.Fprintf(t, " \t\t\talso claimed by %s, which is not served\n", a)
		}
	}
	if more := len(e.Keys) - maxListed; more > 0 {
		fmt.Fprintf(t, " and %d more: name a port to see its keys, as in %s:PORT\t\t\t\n", more, e.Service)
	}
	_ = t.Flush()
}

func verdict(v string) string {
	if v == "forward" {
		return v
	}
	return strings.ToUpper(v)
}

// mostNamed is how many backends a line lists.
const mostNamed = 4

func (y *Way) text() string {
	var b []string
	if y.For != "" {
		b = append(b, y.For+":")
	}
	if y.Why != "" {
		b = append(b, y.Why)
	}
	for i, to := range y.Backends {
		if i == mostNamed {
			b = append(b, fmt.Sprintf("and %d more", y.Count-mostNamed))
			break
		}
		if to.Weight > 0 {
			to.Addr += "=" + strconv.Itoa(int(to.Weight))
		}
		b = append(b, to.Addr)
	}
	out := strings.Join(b, " ")
	if y.Choice != "" {
		out += ", " + y.Choice
	}
	if y.Masquerade == byAgent {
		out += "; the endpoint sees this node: " + y.Masquerade
	} else if y.Masquerade != "" {
		out += "; masqueraded: " + y.Masquerade
	}
	return out
}

func (e *Explanation) rows(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	open := func(string) string { return "" }
	if e.Flows != nil {
		open = func(text string) string { return text + "\t" }
	}
	fmt.Fprintf(t, " endpoint\tstate\tnew\t%s\n", open("open flows"))
	for _, r := range e.Endpoints {
		gets := "no"
		if r.New {
			gets = "yes"
		}
		why := ""
		if r.Why != "" && r.Why != r.State && !strings.HasPrefix(r.State, r.Why+",") {
			why = "<- " + r.Why
		}
		flows := ""
		if r.Flows != nil {
			flows = r.Flows.text()
		}
		fmt.Fprintf(t, " %s\t%s\t%s\t%s%s\n", r.Addr, r.State, gets, open(flows), why)
	}
	if e.More > 0 {
		fmt.Fprintf(t, " and %d more\t\t\t%s\n", e.More, open(""))
	}
	_ = t.Flush()
}

// pad fills a column.
func pad(s string, n int) string { return fmt.Sprintf("%-*s", n, s) }

// age formats a duration in two units: 3d4h, 12m5s.
func age(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	switch {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return d.String()
}

// clock formats the time of day, with the date if that is not today.
func clock(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
		return t.Format(time.DateTime)
	}
	return t.Format(time.TimeOnly)
}

// services formats a number of Services.
func services(n int) string {
	if n == 1 {
		return "1 Service"
	}
	return number(n) + " Services"
}

// number groups digits: 10 021.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
