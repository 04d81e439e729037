package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// A problem is said once, a second one of the same object alone, and the end of
// one that asks for it with the time it lasted.
func TestProblemsAreToldOnceAndTheirEndToo(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	p := newProblemLog(slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return now })
	heard := func() []string {
		var lines []string
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(line, "level=")
			lines = append(lines, strings.TrimSpace(line))
		}
		out.Reset()
		return lines
	}
	server := func(reasons ...string) (list []model.Problem) {
		for _, r := range reasons {
			list = append(list, model.Problem{Kind: model.Unavailable, Object: "API server", Reason: r, Well: "reached the API server again"})
		}
		return list
	}
	for _, step := range []struct {
		after time.Duration
		list  []model.Problem
		well  []string
		want  []string
	}{
		{0, server("cannot reach it"), nil, []string{`WARN msg="cannot reach it"`}},
		{time.Second, server("cannot reach it"), nil, nil},
		{time.Second, server("cannot reach it", "forbidden: list services"), nil, []string{`WARN msg="forbidden: list services"`}},
		{10 * time.Second, nil, []string{"API server"}, []string{`INFO msg="reached the API server again" after=12s`}},
		{0, server("cannot reach it"), nil, []string{`WARN msg="cannot reach it"`}},
		{0, []model.Problem{{Object: "Service a/b", Field: "spec.x", Reason: "is wrong"}}, nil, []string{`WARN msg="bad input: Service a/b: spec.x: is wrong"`}},
		{0, nil, []string{"Service a/b"}, nil},
	} {
		now = now.Add(step.after)
		p.tell(step.list, step.well)
		if got := heard(); strings.Join(got, "\n") != strings.Join(step.want, "\n") {
			t.Errorf("%v, well %v: said %q, want %q", step.list, step.well, got, step.want)
		}
	}
}

// A folder copied into itself has as many problems as objects: they are counted,
// and do not bury what else there is to say.
func TestManyProblemsAreNotAllWritten(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	p := newProblemLog(slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return now })
	bad := func(from int) (list []model.Problem) {
		for i := range 1000 {
			list = append(list, model.Problem{Object: fmt.Sprintf("Service a/b%d", from+i), Reason: "is wrong"})
		}
		return list
	}
	for round := range 3 {
		p.tell(bad(round*1000), nil)
	}
	if n := strings.Count(out.String(), "\n"); n != mostLines+1 || !strings.Contains(out.String(), "fairlead_problems") {
		t.Errorf("%d lines, want %d and one that says where the rest is", n, mostLines)
	}
	if len(p.told) != 3000 {
		t.Errorf("%d of 3000 problems are counted", len(p.told))
	}
	out.Reset()
	p.tell([]model.Problem{{Kind: model.Unavailable, Object: "API server", Reason: "cannot reach it"}}, nil)
	if !strings.Contains(out.String(), "cannot reach it") {
		t.Error("what is no bad input was not said")
	}
	now = now.Add(linesWindow)
	p.tell(bad(5000)[:1], nil)
	if !strings.Contains(out.String(), "Service a/b5000") {
		t.Error("a minute later, one more was not said")
	}
}
