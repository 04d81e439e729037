package inspect

import (
	"fmt"
	"io"
	"time"
)

// Migration is the answer of `fairlead migrate --dry-run`: what a change of the mode of
// the agent that runs would do.
type Migration struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Why it cannot be done; "" if it can.
	Cannot string `json:"cannot,omitempty"`
	// Steps are what is done, in order.
	Steps []string `json:"steps,omitempty"`
	// Removes are the objects of the old mode that go, once the new rules are verified.
	Removes []string `json:"removes,omitempty"`
	// Survives and Lost say what becomes of connections and of what the kernel remembers.
	Survives []string `json:"survives,omitempty"`
	Lost     []string `json:"lost,omitempty"`
	// Differs is what the new mode does otherwise.
	Differs []string `json:"differs,omitempty"`
	// Lasting says what a later start will do.
	Lasting string `json:"lasting,omitempty"`
}

// Text writes it for people.
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

// Changed is what status tells of a change of mode.
type Changed struct {
	From string    `json:"from"`
	To   string    `json:"to"`
	At   time.Time `json:"at"`
	// Failed is why the agent is back in From; "" if it is not.
	Failed string `json:"failed,omitempty"`
	// Verified: the new rules are in, and were compared with the kernel.
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
