package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// changed is what a running subject in ipvs mode takes of CPU time, in milliseconds.
type changed struct {
	One     spread  // of one endpoint that takes another's place
	Idle    float64 // of as long a wait without a change, taken off above
	Restart float64 // of a new process on what the last one left, until it is quiet
	// Written is how many objects that process wrote, by its own account; kube-proxy keeps none.
	Written *float64 `json:",omitempty"`
}

// quietFor is how long a subject must do next to nothing to count as done.
const quietFor = 3 * time.Second

// quiet waits until the subject is done, and gives the CPU time that it took meanwhile.
func (s *subject) quiet() time.Duration {
	start := s.used()
	for last := start; ; {
		time.Sleep(quietFor) // there is no sign of it but that nothing is done
		now := s.used()
		if now-last < 60*time.Millisecond {
			return now - start
		}
		last = now
	}
}

// measureChanges measures single changes and a restart. The subject runs, and is quiet.
func (o *options) measureChanges(s *subject, c *cluster) (*changed, error) {
	r := &changed{Idle: ms(s.quiet())}
	var took []float64
	for i := range o.changes {
		k := large + i*(c.services-large)/o.changes
		other := netip.MustParseAddr(endpointIP(large*largeEach + 100_000 + i))
		moved := slice(k, 0, large*largeEach+(k-large)*c.each, c.each)
		moved.Endpoints[0].Addresses[0] = other.String()
		c.api.Put("endpointslices", moved)
		took = append(took, ms(s.quiet())-r.Idle)
		b := other.As4()
		if n, err := command("node", "grep", "-c", strings.ToUpper(hex.EncodeToString(b[:])), "/proc/net/ip_vs").Output(); err != nil {
			return nil, fmt.Errorf("change %d: %s is not in the kernel: %w %s", i, other, err, n)
		}
	}
	r.One = newSpread(took)
	s.stop()
	if err := s.start(); err != nil {
		return nil, err
	}
	r.Restart = ms(s.quiet())
	text, err := command("node", "curl", "-s", "http://127.0.0.1:10249/metrics").Output()
	if err != nil {
		return nil, fmt.Errorf("read the metrics of %s: %w", s, err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "fairlead_operations_total") {
			n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return nil, err
			}
			if r.Written == nil {
				r.Written = new(float64)
			}
			*r.Written += n
		}
	}
	return r, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
