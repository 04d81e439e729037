package main

import (
	"fmt"
	"strings"
	"time"
)

// The size of the test.
const (
	services       = 2000
	steadyServices = 120
	changesPerSec  = 200
	podsPerNode    = 6
	askers         = 6
	flows          = 40
	// grace is how long an endpoint may still get new connections after its file was written without it.
	// On an idle machine it is some 10 ms; the report has the longest. The time that the agent waits for a processor in between is
	// added.
	grace = 10 * time.Second
	// patience is the time limit of one request: a lost SYN is sent again after 1 s, 3 s and 7 s.
	patience = 10 * time.Second
	slow     = 900 * time.Millisecond
)

func vip4(i int) string { return fmt.Sprintf("10.96.%d.%d", i/250, i%250+1) }
func vip6(i int) string { return fmt.Sprintf("fd00:10:96::%x", i+1) }
func lb4(i int) string  { return fmt.Sprintf("198.18.%d.%d", i/250, i%250+1) }
func lb6(i int) string  { return fmt.Sprintf("2001:db8:18::%x", i+1) }

func (s *service) each(v4, v6 func(int) string) []string {
	if s.dual {
		return []string{v4(s.index), v6(s.index)}
	}
	return []string{v4(s.index)}
}

func (s *service) families() []string {
	if s.dual {
		return []string{"IPv4", "IPv6"}
	}
	return []string{"IPv4"}
}

func (s *service) nodePort() string {
	if s.kind == "ClusterIP" {
		return ""
	}
	return fmt.Sprintf(", nodePort: %d", 30000+s.index)
}

func policy(local bool) string {
	if local {
		return "Local"
	}
	return "Cluster"
}

func quoted(list []string) string { return `"` + strings.Join(list, `", "`) + `"` }
