package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/inspect"
)

// The command ends with the change, and as soon as it is known that there will be none: the agent was killed during the change and restarted in its
// old mode, or was not restarted.
func TestChangeWait(t *testing.T) {
	asked := time.Now()
	old, fresh := &inspect.Status{Since: asked}, func(c *inspect.Changed) *inspect.Status {
		return &inspect.Status{Since: asked.Add(time.Second), Place: "nftables", Changed: c}
	}
	silence := errors.New("connection refused")
	for _, c := range []struct {
		name    string
		now     *inspect.Status
		err     error
		done    bool
		problem string
	}{
		{"before the change", old, nil, false, ""},
		{"no agent for a moment", nil, silence, false, ""},
		{"not compared yet", fresh(&inspect.Changed{To: "iptables-nft"}), nil, false, ""},
		{"done", fresh(&inspect.Changed{To: "iptables-nft", Verified: true}), nil, true, ""},
		{"failed", fresh(&inspect.Changed{From: "nftables", Failed: "no programs"}), nil, false, "the agent is in nftables mode again: no programs"},
		{"killed and started again", fresh(nil), nil, false, "was restarted during the change and runs in nftables mode"},
	} {
		w := changeWait{before: asked}
		if done, problem := w.see(c.now, c.err); done != c.done || !strings.Contains(problem, c.problem) || (problem == "") != (c.problem == "") {
			t.Errorf("%s: %v, %q", c.name, done, problem)
		}
	}
	w, problem := changeWait{before: asked}, ""
	looks := 0
	for ; problem == "" && looks < 10_000; looks++ {
		if looks == 100 { // an answer ends the silence
			w.see(old, nil)
			continue
		}
		_, problem = w.see(nil, silence)
	}
	if want := 101 + int(silentLimit/changePause) + 1; looks != want || !strings.Contains(problem, "no agent has answered since 1m30s") {
		t.Errorf("after %d looks, want %d: %q", looks, want, problem)
	}
}
