package app

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// execute runs a command line that does nothing but print or fail.
func execute(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	cmd := Command("test")
	cmd.SetArgs(args)
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	err = cmd.ExecuteContext(context.Background())
	return b.String(), err
}

// Wrong usage is exit code 2 whatever the command, and says what was meant.
func TestWrongUsage(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"runn", `unknown command "runn": did you mean run?`},
		{"clean", `unknown command "clean": did you mean cleanup?`},
		{"xyzzy", `unknown command "xyzzy"`},
		{"--no-such-flag", "unknown flag: --no-such-flag"},
		{"--manifest x", "unknown flag: --manifest: did you mean --manifests or --manifests-empty?"},
		{"run --porxy-mode x", "unknown flag: --porxy-mode: did you mean --proxy-mode?"},
		{"cleanup --forse", "unknown flag: --forse: did you mean --force?"},
		{"run --no-such-flag", "unknown flag: --no-such-flag"},
		{"run now", `fairlead run takes no arguments and got "now"`},
		{"version now", `fairlead version takes no arguments and got "now"`},
		{"version --no-such-flag", "unknown flag: --no-such-flag"},
		{"cleanup now", `fairlead cleanup takes no arguments and got "now"`},
		{"cleanup --no-such-flag", "unknown flag: --no-such-flag"},
		{"probe --services=-1", "--services is -1, must not be negative"},
		{"wait", "wait takes one argument"},
		{"wait --no-such-flag", "unknown flag: --no-such-flag"},
	} {
		_, err := execute(t, strings.Fields(c.line)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || ExitCode(err) != 2 {
			t.Errorf("fairlead %s: exit code %d, %v; want 2, %s", c.line, ExitCode(err), err, c.want)
		}
	}
}

// The help has kube-proxy's flags apart from ours and from those without effect.
func TestHelpIsInGroups(t *testing.T) {
	for _, line := range []string{"--help", "run --help", "help run"} {
		out, err := execute(t, strings.Fields(line)...)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		at := 0
		for _, part := range []string{"Flags of Fairlead:", "--manifests ", "Flags of kube-proxy:", "--proxy-mode ", "Accepted without effect:", "--vmodule "} {
			i := strings.Index(out[at:], part)
			if i < 0 {
				t.Errorf("%s: %q does not come in its place:\n%s", line, part, out)
				break
			}
			at += i
		}
	}
	if out, _ := execute(t, "--help"); !strings.Contains(out, "completion ") || !strings.Contains(out, "cleanup ") {
		t.Errorf("not every command is named:\n%s", out)
	}
}

// The help of a command tells its exit codes once, and gives examples where it has some.
func TestHelpTellsExitCodes(t *testing.T) {
	for line, want := range map[string]string{"status": "3: no agent runs here.", "explain": "3: no agent runs here.", "trace": "3: no agent runs here.", "audit": "3: no agent runs here.",
		"probe": "0: a mode is recommended.", "cleanup": "1: failed.", "wait": "1: not complete in time."} {
		out, err := execute(t, line, "--help")
		if err != nil || strings.Count(strings.ToLower(out), "exit code 0:") != 1 || !strings.Contains(out, want) {
			t.Errorf("%s --help: %v: not one line of exit codes with %q:\n%s", line, err, want, out)
		}
	}
	if out, _ := execute(t, "explain", "--help"); !strings.Contains(out, "Examples:\n  fairlead explain shop/web\n") {
		t.Errorf("no examples:\n%s", out)
	}
}

// The flags of a command that is not kube-proxy's are not called kube-proxy's.
func TestHelpOfOwnCommands(t *testing.T) {
	for line, flag := range map[string]string{"cleanup --help": "--force ", "wait --help": "--endpoints "} {
		out, err := execute(t, strings.Fields(line)...)
		if err != nil || !strings.Contains(out, flag) || strings.Contains(out, "Flags of") {
			t.Errorf("%s: %v:\n%s", line, err, out)
		}
	}
}
