package app

import (
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
)

// TestMigrate changes the mode of a running agent, there and back; the process stays the
// same, and the old rules go.
func TestMigrate(t *testing.T) {
	needBothBackends(t)
	dir := folder(t, webService)
	p := begin(t, agentArgs(dir, "--proxy-mode=")...)
	p.says("in sync")
	for _, c := range []struct {
		to, wants string
		code      int
	}{
		{"", "migrate needs --to MODE", 2},
		{"ebpf", "must be auto or one of", 2},
		{"nftables", "Cannot be done: the agent already runs in this mode", 1},
		{"userspace", "Cannot be done: userspace mode removes no rules", 1},
		{"iptables-nft", "Survives  open connections: conntrack translates them", 0},
	} {
		code, out := run(t, "migrate", "--dry-run", "--to", c.to)
		if code != c.code || !strings.Contains(out, c.wants) {
			t.Errorf("--to %q: status %d, want %d and %q:\n%s", c.to, code, c.code, c.wants, out)
		}
	}
	if s := status(t); s.Place != "nftables" || s.ModeBy != "default" || s.Changed != nil {
		t.Errorf("a dry run did something: %+v", s)
	}
	for _, to := range []string{"iptables-legacy", "nftables", "iptables-nft"} {
		if code, out := run(t, "migrate", "--to", to); code != 0 || !strings.Contains(out, "compared with the kernel") {
			t.Fatalf("--to %s: status %d:\n%s", to, code, out)
		}
		s := status(t)
		if s.Place != to || s.ModeBy != "" || s.PID != p.cmd.Process.Pid || s.Changed == nil || !s.Changed.Verified {
			t.Errorf("after --to %s: %+v", to, s)
		}
		onlyRulesOf(t, to)
	}
	p.terminate()
}

// TestModeThatCannotStart: the old one goes on.
func TestModeThatCannotStart(t *testing.T) {
	dir := folder(t, webService)
	t.Setenv(changeVariable, `{"to":"iptables-legacy","from":"nftables"}`)
	t.Setenv("PATH", t.TempDir()) // no programs of iptables
	p := begin(t, agentArgs(dir)...)
	p.says("cannot change the mode; continuing in the old mode")
	p.says("in sync")
	if s := status(t); s.Place != "nftables" || s.Changed == nil || !strings.Contains(s.Changed.Failed, "iptables is not installed") {
		t.Errorf("%+v %+v", s, s.Changed)
	}
	p.terminate()
}

func status(t *testing.T) (s inspect.Status) {
	t.Helper()
	_, out := run(t, "status", "-o", "json")
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&s); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return s
}

// onlyRulesOf waits until the rules of the other modes are gone.
func onlyRulesOf(t *testing.T, mode string) {
	t.Helper()
	look := map[string]string{"nftables": "nft list tables | grep 'fairlead$'", "iptables-nft": "iptables-nft-save 2>/dev/null | grep KUBE-", "iptables-legacy": "iptables-legacy-save | grep KUBE-"}
	for of, command := range look {
		eventually(t, "rules of "+of+" in mode "+mode, func() error {
			out, err := exec.Command("sh", "-c", command).CombinedOutput()
			if (len(out) > 0) != (of == mode) {
				return &exec.Error{Name: string(out), Err: err}
			}
			return nil
		})
	}
}

// TestVerifyCountsEveryDifference: the rules of the earlier mode stay while one rule of the new mode is missing or differs.
func TestVerifyCountsEveryDifference(t *testing.T) {
	for _, c := range []struct {
		found engine.Audited
		done  bool
	}{
		{engine.Audited{}, true},
		{engine.Audited{Missing: 1}, false},
		{engine.Audited{Different: 1}, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // one comparison only
		m := newMigration(&agent{log: newLoggerTo(io.Discard, config.Logging{})}, &launch{})
		err := m.compare(ctx, true, func(context.Context) (engine.Audited, error) { return c.found, nil })
		if done := err == nil; done != c.done {
			t.Errorf("%+v: verified %v, want %v", c.found, done, c.done)
		}
	}
}
