package inspect

import (
	"fmt"
	"io"
	"strings"
)

// Live is what a real packet met, as the kernel told it.
type Live struct {
	Seen  bool   `json:"seen"` // a packet of such a connection came
	Steps []Step `json:"steps,omitempty"`
	// Ended is the table whose rule ended the packet's way; "" if none of nftables did.
	Ended string `json:"endedByTable,omitempty"`
	Ours  bool   `json:"ours,omitempty"` // that table is fairlead's
	Text  string `json:"text"`           // in words
	Note  string `json:"note,omitempty"` // what cannot be seen here
}

// Met is one thing that the packet met.
type Met struct {
	Table, Chain string
	Ours         bool
	Rule         uint64 // its handle; 0: none
	Does         string // drop, accept, goto X, jump X, return; "" if the next rule came
	Policy       bool
	To           string // where the packet was going then; "" if that is not told
}

const (
	// mostSteps bounds what is listed of one packet.
	mostSteps = 60
	dropped   = "drop"
)

// Ends reports whether the packet went no further.
func (m *Met) Ends() bool { return m.Does == dropped }

func (m *Met) where() string { return "table " + m.Table + ", chain " + m.Chain }

func (m *Met) text() string {
	switch {
	case m.Policy:
		return m.where() + ": its end, policy " + m.Does
	case m.Does == "":
		return fmt.Sprintf("%s, rule %d", m.where(), m.Rule)
	}
	return fmt.Sprintf("%s, rule %d: %s", m.where(), m.Rule, m.Does)
}

// LiveOf sums up what one packet met; nothing: none came within the time.
func LiveOf(met []Met, waited string) Live {
	if len(met) == 0 {
		return Live{Text: "no packet of such a new connection came by within " + waited + ": have the client connect while the trace runs"}
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
		l.Ended, l.Ours, l.Text = last.Table, true, "refused or dropped by fairlead: "+last.where()
	case last.Ends():
		l.Ended, l.Text = last.Table, "sent to "+to+", and dropped there by a rule that is not fairlead's: "+last.text()
	default:
		l.Text = "sent to " + to + "; no table of nftables dropped it, the last to see it was " + last.where()
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

// OursAmong reports whether a chain is fairlead's; iptables: the mode writes kube-proxy's chains in iptables' own tables.
func OursAmong(iptables bool, table, chain string) bool {
	return strings.HasPrefix(table, "fairlead") || iptables && strings.HasPrefix(chain, "KUBE-")
}
