package inspect

import (
	"fmt"
	"io"
	"time"
)

// Migration is the answer of `fairlead migrate --dry-run`: the effects of a change of
// the mode of the running agent.
type Migration struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Cannot is why the change is impossible; "" if it is possible.
	Cannot string `json:"cannot,omitempty"`
	// Steps are the actions, in order.
	Steps []string `json:"steps,omitempty"`
	// Removes lists the objects of the old mode that are removed once the new rules are
	// verified.
	Removes []string `json:"removes,omitempty"`
	// Survives and Lost describe the effect on connections and on other state in the
	// kernel.
	Survives []string `json:"survives,omitempty"`
	Lost     []string `json:"lost,omitempty"`
	// Differs lists how the new mode behaves differently.
	Differs []string `json:"differs,omitempty"`
	// Lasting describes the effect on a later start.
	Lasting string `json:"lasting,omitempty"`
}

// Text writes the answer as text.
func (m *Migration) Text(w io.Writer) {
	fmt.Fprintf(w, "From %s to %s\n", m.From, m.To)
	if m.Cannot != "" {
		fmt.Fprintf(w, "Cannot be done: %s\n", m.Cannot)
		return
	}
	for i, s := range m.Steps {
		fmt.Fprintf(w, "%d. %s\n", i+1, s)
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Removed", m.Removes}, {"Survives", m.Survives}, {"Lost", m.Lost}, {"Differs", m.Differs}} {
		for _, l := range part.lines {
			fmt.Fprintf(w, "%-9s %s\n", part.title, l)
		}
	}
	if m.Lasting != "" {
		fmt.Fprintf(w, "%-9s %s\n", "Later", m.Lasting)
	}
}

// Changed is the last change of mode, as status reports it.
type Changed struct {
	From string    `json:"from"`
	To   string    `json:"to"`
	At   time.Time `json:"at"`
	// Failed is why the agent is back in From; "" if it is not.
	Failed string `json:"failed,omitempty"`
	// Verified: the new rules have been written, and were compared with the
	// kernel.
	Verified bool `json:"verified"`
}

func (c *Changed) text() string {
	switch {
	case c.Failed != "":
		return fmt.Sprintf("to %s failed, back in %s: %s", c.To, c.From, c.Failed)
	case !c.Verified:
		return fmt.Sprintf("from %s, not verified yet", c.From)
	}
	return fmt.Sprintf("from %s, verified", c.From)
}
