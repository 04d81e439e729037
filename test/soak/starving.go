package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// starving samples how long the agent's threads have waited for a processor, all together, since it started. On a machine that other
// programs keep busy this wait makes the agent late, which is not its fault. On an idle machine it is almost 0.
type starving struct {
	mu   sync.Mutex
	list []waited
}

type waited struct {
	at    time.Time
	total time.Duration
}

// run takes ten samples a second until ctx ends.
func (s *starving) run(ctx context.Context, a *agent) error {
	for tick := time.Tick(100 * time.Millisecond); ; {
		if err := s.sample(a.proc.Pid()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}

// sample takes one sample.
func (s *starving) sample(pid int) error {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return err
	}
	total := time.Duration(0)
	for _, f := range files {
		data, err := os.ReadFile(f)
		fields := strings.Fields(string(data)) // running, waiting, slices
		if err != nil || len(fields) < 2 {
			continue // the thread has ended
		}
		ns, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return fmt.Errorf("read %s: %w", f, err)
		}
		total += time.Duration(ns)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, waited{time.Now(), total})
	return nil
}

// since returns how long the agent waited from a time until now, by the last sample.
func (s *starving) since(at time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return 0
	}
	i := len(s.list) - 1
	for i > 0 && s.list[i].at.After(at) {
		i--
	}
	return max(0, s.list[len(s.list)-1].total-s.list[i].total) // the total falls as a thread ends
}

// grace returns how long after a time an endpoint that was removed then may get new connections.
func (s *starving) grace(at time.Time) time.Duration { return grace + s.since(at) }
