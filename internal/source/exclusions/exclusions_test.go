package exclusions

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/patience"
)

func TestParse(t *testing.T) {
	list, problems := parse("file x", "\ufeff10.1.2.3 \r\n# all\n\n10.2.0.9/16 # a range\nfd00::1\nfd00:1::/64\n::ffff:10.3.0.1\n::ffff:10.4.0.0/112\nnonsense\n10.0.0.0/33\nfe80::1%eth0\n::/1\n")
	var got []string
	for _, p := range list {
		got = append(got, p.String())
	}
	want := []string{"10.1.2.3/32", "10.2.0.0/16", "fd00::1/128", "fd00:1::/64", "10.3.0.1/32", "10.4.0.0/16", "::/1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var fields []string
	for _, p := range problems {
		fields = append(fields, p.Field)
	}
	if want := []string{"line 9", "line 10", "line 11"}; !slices.Equal(fields, want) {
		t.Errorf("problems of %q, want %q", fields, want)
	}
	if got := problems[0].String(); got != `file x: line 9: "nonsense" is neither an address nor a prefix, such as 10.1.2.3 or fd00:1::/64` {
		t.Error(got)
	}
}

// A file with nothing but bad lines is reported in a few Problems, and one with more entries than the limit of the
// kernel excludes all.
func TestTooMuch(t *testing.T) {
	if list, problems := parse("file x", strings.Repeat("bad\n", 100)); len(list) != 0 || len(problems) != maxProblems+1 || !strings.Contains(problems[maxProblems].Reason, "80 more") {
		t.Errorf("%d, %d problems, last %v", len(list), len(problems), problems[len(problems)-1])
	}
	if list, problems := parse("file x", strings.Repeat("10.0.0.1\n", maxPrefixes+1)); !slices.Equal(list, everything()) || len(problems) != 1 {
		t.Errorf("%d ranges, %v", len(list), problems)
	}
}

// watch runs a Watcher until the test ends. next returns its events.
func watch(t *testing.T, path string) (next func(what string) model.Event) {
	t.Helper()
	events := make(chan model.Event, 100) // more than a test makes
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- New(path).Run(ctx, func(e model.Event) { events <- e }) }()
	t.Cleanup(func() { stop(); <-done })
	return func(what string) model.Event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-time.After(patience.Of(30 * time.Second)):
			t.Fatalf("%s: no event", what)
		}
		return model.Event{}
	}
}

func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	next := watch(t, path)
	want := func(what string, e model.Event, problems int, list ...string) {
		t.Helper()
		var got []string
		if e.Exclusions != nil {
			for _, p := range e.Exclusions.Prefixes {
				got = append(got, p.String())
			}
		}
		if !slices.Equal(got, list) || len(e.Problems) != problems || e.Origin != "file "+path {
			t.Errorf("%s: %q, %v", what, got, e.Problems)
		}
	}
	want("no file yet", next("no file yet"), 1, "0.0.0.0/0", "::/0")
	if e := next("synced"); e.Synced != Name {
		t.Errorf("%+v", e)
	}
	write("10.0.0.1\nbad\n")
	e := next("created")
	want("created", e, 1, "10.0.0.1/32")
	if e.Trigger.IsZero() {
		t.Error("a change has no time")
	}
	write("10.0.0.1\n10.0.0.2\n")
	want("replaced", next("replaced"), 0, "10.0.0.1/32", "10.0.0.2/32")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	e = next("removed")
	want("removed", e, 1)
	if e.Exclusions != nil || !strings.Contains(e.Problems[0].Reason, "the last content that was read stays in effect") {
		t.Errorf("%+v", e)
	}
	write("10.0.0.1\n10.0.0.2\n")
	want("back", next("back"), 0, "10.0.0.1/32", "10.0.0.2/32")
}

// A start with the file delivers it before it says that it is synced.
func TestFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte("10.0.0.0/8"), 0o644); err != nil {
		t.Fatal(err)
	}
	next := watch(t, path)
	if e := next("first"); e.Exclusions == nil || !slices.Equal(e.Exclusions.Prefixes, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}) || !e.Trigger.IsZero() {
		t.Errorf("%+v", e)
	}
	if e := next("synced"); e.Synced != Name {
		t.Errorf("%+v", e)
	}
}
