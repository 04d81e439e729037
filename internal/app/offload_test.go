package app

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/fastpath"
)

// TestNotAccelerated: a release that nobody doubts is not tested unless it is asked for; a doubt ends by packets only.
func TestNotAccelerated(t *testing.T) {
	broken, unknown := errors.New("IPv4: it stands still"), &fastpath.UntestableError{Err: errors.New("no namespace")}
	for _, c := range []struct {
		release string
		when    config.SelfTest
		result  error
		tested  bool
		why     string // a part of it
	}{
		{"6.12.1", config.SelfTestAuto, broken, false, ""},
		{"6.12.1", config.SelfTestNever, broken, false, ""},
		{"6.12.1", config.SelfTestAlways, broken, true, "self-test failed on this kernel, 6.12.1: IPv4: it stands still"},
		{"6.12.1", config.SelfTestAlways, unknown, true, ""},
		{"6.12.1", config.SelfTestAlways, nil, true, ""},
		{"6.19.2", config.SelfTestAuto, broken, true, "it stands still"},
		{"6.19.2", config.SelfTestAuto, nil, true, ""},
		{"6.19.2", config.SelfTestAuto, unknown, true, "Linux 6.19 breaks TCP connections with translated addresses on the fast path; it is assumed to, for here it cannot be tested: no namespace"},
		{"6.19.2", config.SelfTestNever, nil, false, "Linux 6.19 breaks TCP connections"},
		{"7.1.0", config.SelfTestAuto, broken, true, "it stands still"},
		{"7.1.0", config.SelfTestAuto, unknown, true, "whether this release does is unknown; it is assumed to"},
		{"7.1.0", config.SelfTestNever, broken, false, ""},
	} {
		tested := false
		why := notAccelerated(c.release, c.when, func() error { tested = true; return c.result }, slog.New(slog.DiscardHandler))
		if tested != c.tested || (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s, %s, %v: tested %v, %q; want %v, %q", c.release, c.when, c.result, tested, why, c.tested, c.why)
		}
	}
}
