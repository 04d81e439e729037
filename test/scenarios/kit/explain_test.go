package kit

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/test/netlab"
)

// explaining is a Subject that returns one fixed explanation.
type explaining struct{ Subject }

func (explaining) Explain(_ context.Context, about string, from netip.Addr) (*inspect.Explanation, error) {
	return &inspect.Explanation{Summary: about + " is refused", Outcome: "reject", Notes: []string{"no pod matches the selector"}}, nil
}

// TestExplainExpectation checks that the outcome and the words of one line must match the
// scenario.
func TestExplainExpectation(t *testing.T) {
	for line, want := range map[string]string{
		`explain test/web: reject contains "Why" "no pod matches"`:           "",
		`explain test/web: reject contains "test/web is refused"`:            "",
		`explain test/web: forward contains "Why"`:                           "it says reject, want forward",
		`explain test/web: reject contains "Why" "test/web"`:                 "no line holds all of", // they are in two lines
		`explain test/web: reject contains`:                                  "cannot read line",
		`explain test/web: refused contains "Why"`:                           "cannot read line",
		`explain test/web from client: reject contains "no pod matches the"`: "cannot read line",
	} {
		list, err := parseExpectation(line, netlab.TCP)
		for _, e := range list {
			err = e.check(t.Context(), &run{subject: explaining{}})
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
