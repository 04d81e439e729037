package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/control"
)

// TestWhoMayNotAsk: that an agent does not answer this user says nothing about how it is, and the text says who may ask.
func TestWhoMayNotAsk(t *testing.T) {
	squatted := &control.SquattedError{PID: 7, UID: 1000}
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{&control.AnswerError{Status: 403, Text: "only root"}, Usage, "only root"},
		{&control.AnswerError{Status: 400, Text: "no such question"}, Usage, "no such question"},
		{&control.AnswerError{Status: 400, Text: "no \x1b[2J"}, Usage, `no \x1b[2J`},
		{&control.AnswerError{Status: 503, Text: "busy"}, Unwell, "busy"},
		{fmt.Errorf("ask: %w", squatted), NoAgent, "query it as that user (setpriv --reuid 1000 fairlead status)"},
		{control.ErrNoAgent, NoAgent, "no agent"},
	} {
		err := failed(c.err)
		if code, ours := ExitCode(err); !ours || code != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: code %d: %v", c.err, code, err)
		}
	}
}
