package inspect

import (
	"fmt"
	"io"
	"strings"
)

// Live is the path of a real packet, as the kernel reported it.
type Live struct {
	Seen  bool   `json:"seen"` // a packet of such a connection was seen
	Steps []Step `json:"steps,omitempty"`
	// Ended is the table whose rule ended the packet's path; "" if no rule of nftables
	// did.
	Ended string `json:"endedByTable,omitempty"`
	Ours  bool   `json:"ours,omitempty"` // the table is owned by fairlead
	Text  string `json:"text"`           // in words
	Note  string `json:"note,omitempty"` // limitation: what the kernel does not report here
}

// Met is one rule or policy that the packet met.
type Met struct {
	Table, Chain string
	Ours         bool
	Rule         uint64 // its handle; 0: none
	Does         string // drop, accept, goto X, jump X, return; "" if the next rule was evaluated
	Policy       bool
	To           string // the packet's destination at that point; "" if the kernel does not report it
}

const (
	// mostSteps bounds the steps that are listed of one packet.
	mostSteps = 60
	dropped   = "drop"
)

// Ends reports whether the packet ended here.
func (m *Met) Ends() bool { return m.Does == dropped }

func (m *Met) where() string { return "table " + m.Table + ", chain " + m.Chain }

func (m *Met) text() string {
	switch {
	case m.Policy:
		return m.where() + ": end of chain, policy " + m.Does
	case m.Does == "":
		return fmt.Sprintf("%s, rule %d", m.where(), m.Rule)
	}
	return fmt.Sprintf("%s, rule %d: %s", m.where(), m.Rule, m.Does)
}

// LiveOf summarizes what one packet met. An empty met means that no packet came
// within the time.
func LiveOf(met []Met, waited string) Live {
	if len(met) == 0 {
		return Live{Text: "no packet of such a new connection arrived within " + waited + ": have the client connect while the trace runs"}
	}
	l := Live{Seen: true}
	to := ""
	for i := range met {
		m := &met[i]
		text := m.text()
		if m.To != "" && m.To != to {
			if to != "" {
				text += " (now to " + m.To + ")"
			}
			to = m.To
		}
		goesBack := m.Rule == 0 && !m.Policy // the end of a chain that another one jumped to
		if !goesBack && len(l.Steps) < mostSteps {
			l.Steps = append(l.Steps, Step{map[bool]string{true: "ours", false: "other"}[m.Ours], text})
		}
	}
	last := &met[len(met)-1]
	switch {
	case last.Ends() && last.Ours:
		l.Ended, l.Ours, l.Text = last.Table, true, "rejected or dropped by fairlead: "+last.where()
	case last.Ends():
		l.Ended, l.Text = last.Table, "sent to "+to+", and dropped there by a rule that is not fairlead's: "+last.text()
	default:
		l.Text = "sent to " + to + "; no nftables table dropped it; the last one that it traversed was " + last.where()
	}
	return l
}

func (l *Live) write(w io.Writer) {
	for _, s := range l.Steps {
		fmt.Fprintf(w, "  %-5s %s\n", s.Name, s.Text)
	}
	if l.Note != "" {
		fmt.Fprintf(w, "Live: %s\n", l.Note)
	}
	if l.Text != "" {
		fmt.Fprintf(w, "Live: %s\n", l.Text)
	}
}

// OursAmong reports whether a chain is owned by fairlead. iptables: the mode writes kube-proxy's chains in the tables of
// iptables.
func OursAmong(iptables bool, table, chain string) bool {
	return strings.HasPrefix(table, "fairlead") || iptables && strings.HasPrefix(chain, "KUBE-")
}
