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

// changed is the CPU time that a running subject in ipvs mode takes, in milliseconds.
type changed struct {
	One     spread  // for one endpoint that replaces another
	Idle    float64 // for as long a wait without a change, the median of those before each change; subtracted from One
	Restart float64 // for a new process on the state that the last one left, until it is quiet
	// Written is how many objects that process wrote, by its own metrics; kube-proxy does not report this.
	Written *float64 `json:",omitempty"`
}

// quietFor is how long a subject must be almost idle to count as done.
const quietFor = 3 * time.Second

// quiet waits until the subject is done, and returns the CPU time that it took during the wait.
func (s *subject) quiet() time.Duration {
	start := s.used()
	for last := start; ; {
		time.Sleep(quietFor) // the only sign of the end is that the subject does no work
		now := s.used()
		if now-last < 60*time.Millisecond {
			return now - start
		}
		last = now
	}
}

// caughtUp waits until the subject reports that its last sync began after the last change that it received. CPU time does not show this: a
// sync that waits for programs or for the disk takes almost none. The request costs CPU time, so it must not be part of a measurement.
func (s *subject) caughtUp(limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(time.Second) {
		queued, err := s.metric(`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"}`)
		if err != nil {
			return err
		}
		done, err := s.metric(`kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}`)
		if err != nil {
			return err
		}
		if done > 0 && done >= queued {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is not in sync: last sync at %f, last change at %f", s, done, queued)
		}
	}
}

// metric returns the sum of the metrics of the subject whose lines begin with prefix.
func (s *subject) metric(prefix string) (sum float64, err error) {
	text, err := command("node", "curl", "-sf", "http://127.0.0.1:10249/metrics").Output()
	if err != nil {
		return 0, fmt.Errorf("read the metrics of %s: %w", s, err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, prefix) {
			n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}

// measureChanges measures single changes and a restart. The subject runs, and is quiet.
func (o *options) measureChanges(s *subject, c *cluster) (*changed, error) {
	r := &changed{}
	s.quiet() // the remaining work of a sync must not count as idle time
	var took, idle []float64
	for i := range o.changes {
		idle = append(idle, ms(s.quiet()))
		k := large + i*(c.services-large)/o.changes
		other := netip.MustParseAddr(endpointIP(large*largeEach + 100_000 + i))
		moved := slice(k, 0, large*largeEach+(k-large)*c.each, c.each)
		moved.Endpoints[0].Addresses[0] = other.String()
		before := s.used()
		c.api.Put("endpointslices", moved)
		b := other.As4()
		if err := untilServers("grep", strings.ToUpper(hex.EncodeToString(b[:])), true); err != nil {
			return nil, fmt.Errorf("change %d: %s is not in the kernel: %w\n%s", i, other, err, s.said())
		}
		s.quiet()
		took = append(took, ms(s.used()-before))
		fmt.Printf("%s, %d Services: change %d took %.2f ms of CPU time\n", s, c.services, i, took[i])
	}
	r.Idle = newSpread(idle).Median
	for i := range took {
		took[i] -= r.Idle
	}
	r.One = newSpread(took)
	// The subject deletes the servers of the last changes later. A restart before that would count these writes as its own.
	if err := untilServers("awk", `$1 == "->" && $4 == "0"`, false); err != nil {
		return nil, fmt.Errorf("real servers without weight: %w", err)
	}
	s.stop()
	if err := s.start(); err != nil {
		return nil, err
	}
	r.Restart = ms(s.quiet())
	if err := s.caughtUp(o.limit); err != nil {
		return nil, err
	}
	if s.name == "fairlead" {
		n, err := s.metric("fairlead_operations_total")
		if err != nil {
			return nil, err
		}
		r.Written = &n
	}
	return r, nil
}

// changeLimit is how long a change may take; kube-proxy reads everything for one change.
const changeLimit = 5 * time.Minute

// untilServers waits until a program finds a match, or no match, in the kernel's list of virtual and real servers.
func untilServers(program, pattern string, some bool) error {
	for end := time.Now().Add(changeLimit); ; time.Sleep(500 * time.Millisecond) {
		found, err := command("node", program, pattern, "/proc/net/ip_vs").Output()
		switch {
		case (len(found) > 0) == some:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("not within %s: %v %s", changeLimit, err, found)
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
