package kit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// answer is the required result of a request.
type answer struct {
	kind     string    // backends, backend, same, shares, changes, refused, timeout, unreachable, reset, closed, fails
	backends []string  // names, or name:port
	source   string    // "", preserved, kept, masqueraded, or an address
	shares   []float64 // per cent, in the order of backends
	tries    int
	pause    time.Duration
}

// matches checks that an answered reply comes from a required backend with the required
// source address.
func (a answer) matches(rep netlab.Reply, r *run) error {
	if rep.Outcome != netlab.Answered {
		return fmt.Errorf("%s (%v)", rep.Outcome, rep.Err)
	}
	named := fmt.Sprintf("%s:%d", rep.Backend, rep.Port)
	if len(a.backends) > 0 && !slices.Contains(a.backends, rep.Backend) && !slices.Contains(a.backends, named) {
		return fmt.Errorf("%s answered, want only %s", named, strings.Join(a.backends, " "))
	}
	switch a.sourceIn(r.mode) {
	case "":
		return nil
	case "preserved":
		if !rep.Preserved() {
			return fmt.Errorf("%s saw %s, want the client's own %s", rep.Backend, rep.Source.Addr(), rep.Own)
		}
	case "masqueraded":
		// For a request from the node itself, masquerading may choose the source address
		// that the request already had.
		if rep.Preserved() && !r.onNode(rep.Own) || !r.onNode(rep.Source.Addr()) {
			return fmt.Errorf("%s saw %s (client %s), want an address of node-a", rep.Backend, rep.Source.Addr(), rep.Own)
		}
	default:
		if want, err := netip.ParseAddr(a.source); err != nil || rep.Source.Addr() != want {
			return fmt.Errorf("%s saw %s, want %s", rep.Backend, rep.Source.Addr(), a.source)
		}
	}
	return nil
}

// sourceIn returns the source that the server is expected to see in a mode.
func (a answer) sourceIn(mode string) string {
	if a.source == "kept" {
		return "preserved"
	}
	if mode == userspace && a.source != "" {
		return "masqueraded"
	}
	return a.source
}

// quiet checks a reply that is expected to be a failure.
func (a answer) quiet(rep netlab.Reply, r *run) error {
	if rep.Outcome == netlab.Answered {
		return fmt.Errorf("%s, want %s", rep, a.kind)
	}
	want := a.kind
	if want == "untaken" {
		want = "timeout"
	}
	if want != "fails" && string(rep.Outcome) != want {
		return fmt.Errorf("%s (%v), want %s", rep.Outcome, rep.Err, want)
	}
	return nil
}

func (a answer) timeout(proto netlab.Protocol) time.Duration {
	if a.silent() && proto != netlab.TCP {
		return quietTimeout
	}
	return requestTimeout
}

// parseAnswer reads the required result of a request; the README lists the forms.
func parseAnswer(w []string) (a answer, err error) {
	if len(w) == 0 {
		return a, errBadLine
	}
	a.kind, w = w[0], w[1:]
	switch a.kind {
	case "refused", "timeout", "unreachable", "reset", "closed", "fails", "untaken":
	case "backend", "backends":
		w, err = a.readBackends(w)
	case "same":
		w, err = a.readSame(w)
	case "changes":
		w, err = a.readChanges(w)
	case "shares":
		w, err = a.readShares(w)
	default:
		err = errBadLine
	}
	if err == nil && len(w) > 0 {
		err = errBadLine
	}
	return a, err
}

// readBackends reads `NAME... [source S]`.
func (a *answer) readBackends(w []string) ([]string, error) {
	n := slices.Index(w, "source")
	if n < 0 {
		n = len(w)
	}
	if n == 0 {
		return w, errBadLine
	}
	a.backends = w[:n]
	return a.readSource(w[n:])
}

func (a *answer) readSource(w []string) ([]string, error) {
	if len(w) == 2 && w[0] == "source" {
		a.source = w[1]
		return nil, nil
	}
	return w, nil
}

// readSame reads `backend N times [source S]`.
func (a *answer) readSame(w []string) ([]string, error) {
	if len(w) < 3 || w[0] != "backend" || w[2] != "times" {
		return w, errBadLine
	}
	n, err := strconv.Atoi(w[1])
	if err != nil {
		return w, err
	}
	a.tries = n
	return a.readSource(w[3:])
}

// readChanges reads `backend within N tries, DURATION apart`.
func (a *answer) readChanges(w []string) ([]string, error) {
	if len(w) != 6 || w[0] != "backend" || w[1] != "within" || w[3] != "tries" || w[5] != "apart" {
		return w, errBadLine
	}
	var err1, err2 error
	a.tries, err1 = strconv.Atoi(w[2])
	a.pause, err2 = time.ParseDuration(w[4])
	return nil, errors.Join(err1, err2)
}

// readShares reads `NAME=PERCENT... of N`.
func (a *answer) readShares(w []string) ([]string, error) {
	n := len(w) - 2
	if n < 1 || w[n] != "of" {
		return w, errBadLine
	}
	for _, share := range w[:n] {
		name, percent, _ := strings.Cut(share, "=")
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil {
			return w, errBadLine
		}
		a.backends, a.shares = append(a.backends, name), append(a.shares, p)
	}
	var err error
	a.tries, err = strconv.Atoi(w[n+1])
	return nil, err
}
