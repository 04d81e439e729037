package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// stubborn is a driver whose Probe fails, from the second time on in another way, until it
// is cut short.
type stubborn struct {
	dataplane.Driver
	tried, works int
}

func (s *stubborn) Probe(ctx context.Context) (dataplane.Caps, error) {
	s.tried++
	switch {
	case ctx.Err() != nil:
		return dataplane.Caps{}, ctx.Err()
	case s.works > 0 && s.tried >= s.works:
		return dataplane.Caps{}, nil
	case s.tried == 1:
		return dataplane.Caps{}, errors.New("no buffer space")
	}
	return dataplane.Caps{}, errors.New("open /run/xtables.lock: read-only file system")
}

// TestProbeSaysWhyItRetries: each reason is logged once, at once, and the last one is the
// error after a minute.
func TestProbeSaysWhyItRetries(t *testing.T) {
	for works, want := range map[int]string{0: "open /run/xtables.lock: read-only file system", 5: ""} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			log, begun := slog.New(slog.NewTextHandler(&b, nil)), time.Now()
			s := &stubborn{works: works}
			_, err := probe(t.Context(), s, log)
			if (want == "") != (err == nil) || err != nil && err.Error() != want {
				t.Errorf("probe: %v, want %q", err, want)
			}
			for _, reason := range []string{"no buffer space", "read-only file system"} {
				if n := strings.Count(b.String(), reason); n != 1 {
					t.Errorf("%q is logged %d times:\n%s", reason, n, &b)
				}
			}
			if took := time.Since(begun); (want != "") != (took >= probeLimit) {
				t.Errorf("took %v", took)
			}
		})
	}
}
