package choose

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Report is the answer of `fairlead probe`.
type Report struct {
	Kernel string `json:"kernel"`
	// Where says where the modes were tried.
	Where string `json:"where"`
	// Services is how many there are; 0 if unknown.
	Services int   `json:"services,omitempty"`
	Modes    []Try `json:"modes"`
	// Acceleration is what the kernel could do to pass by the rules for open connections.
	Acceleration Try `json:"acceleration"`
	// Running is the mode of the agent that runs here, "" if none does.
	Running     string `json:"running,omitempty"`
	Recommended Choice `json:"recommended"`
	// Fresh is the result of the rule for a node without rules of the agent.
	Fresh string `json:"fresh,omitempty"`
	// Failed is why there is no recommendation.
	Failed string   `json:"failed,omitempty"`
	Switch []string `json:"howToSwitch,omitempty"`
}

// SayHow fills Switch.
func (r *Report) SayHow() {
	to := r.Fresh
	switch {
	case to == "" || to == r.Running:
		return
	case r.Running == "":
		r.Switch = []string{"start the agent with --proxy-mode auto, which uses the recommended mode, or with another mode (--iptables-backend for iptables)"}
		return
	case r.Running != r.Recommended.Mode:
		to = r.Recommended.Mode
	}
	r.Switch = []string{
		fmt.Sprintf("fairlead migrate --to %s --dry-run   prints what a change would do", to),
		fmt.Sprintf("fairlead migrate --to %s             changes the mode of the running agent", to),
	}
}

// Text writes it for people.
func (r *Report) Text(w io.Writer) {
	fmt.Fprintf(w, "Linux %s; each mode was tried %s", r.Kernel, r.Where)
	if r.Services > 0 {
		fmt.Fprintf(w, "; %d Services", r.Services)
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, t := range append(append([]Try(nil), r.Modes...), r.Acceleration) {
		fmt.Fprintf(table, "%s\t%s\t%s\n", t.Mode, word(t), t.Why)
		for _, n := range t.Notes {
			fmt.Fprintf(table, "\t\t%s\n", n)
		}
	}
	_ = table.Flush()
	if r.Running != "" {
		fmt.Fprintf(w, "Running: %s\n", r.Running)
	}
	if r.Failed != "" {
		fmt.Fprintf(w, "Recommended: nothing: %s\n", r.Failed)
		return
	}
	fmt.Fprintf(w, "Recommended: %s\n", r.Recommended.Mode)
	for _, b := range r.Recommended.Because {
		fmt.Fprintf(w, "  %s\n", b)
	}
	if r.Fresh != "" && r.Fresh != r.Recommended.Mode {
		fmt.Fprintf(w, "  on a node without rules of fairlead: %s\n", r.Fresh)
	}
	for _, s := range r.Switch {
		fmt.Fprintf(w, "To change: %s\n", s)
	}
}

func word(t Try) string {
	switch {
	case t.Works:
		return "yes"
	case t.Unsure:
		return "unsure"
	}
	return "no"
}
