package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"time"
)

// measurement is one line of the results.
type measurement struct {
	What    string  // sweep, oneshot, stall
	Server  string  // see subjects
	Variant string  // of sweep: see variants
	Publish float64 // s after T0
	Timeout float64 // ZMQ_CONNECT_TIMEOUT, s; 0 = none
	Round   int
	Seconds float64 // sweep: until all three had an answer, from T0; otherwise the longest
	OK      int     // of three
	Late    float64 // how late the three started, in the worst case
}

// subject is a server with a way to use it.
type subject struct {
	name   string
	server string
	park   string // annotation of the job's Service
}

func subjects() []subject {
	return []subject{
		{"coredns", "coredns", ""}, {"coredns-uncached", "coredns-uncached", ""},
		{"fairlead", "fairlead", ""}, {"fairlead-4s", "fairlead", "4s"}, {"fairlead-nopark", "fairlead", "0"},
	}
}

// variant is what the document called "with the service": plain has no other Service;
// object creates an unrelated one at the same moment; awaited starts the workers when
// the one-off pod behind it has finished, 4 s later.
type variant struct {
	name  string
	start time.Duration
}

const publishAfter = 3 * time.Second

type cells struct {
	r     *rig
	ctx   context.Context
	round int
	n     int // jobs so far, for names and ports
}

func (r *rig) sweep(ctx context.Context, rounds int, quick bool) error {
	r.addProbe()
	if err := r.writeResolvConf(r.node.Addrs.V4); err != nil {
		return err
	}
	c := &cells{r: r, ctx: ctx}
	for c.round = range rounds {
		for _, s := range subjects() {
			if quick && s.name != "coredns" && s.name != "fairlead" {
				continue
			}
			if err := r.start(ctx, servers()[s.server], netip.AddrPortFrom(r.node.Addrs.V4, 53), ""); err != nil {
				return err
			}
			err := c.subject(s, quick)
			r.stopServers()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *cells) subject(s subject, quick bool) error {
	timeouts := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	variants := []variant{{"plain", 0}, {"object", 0}, {"awaited", 4 * time.Second}}
	if quick {
		timeouts, variants = []int{0, 5}, variants[:1]
	}
	for _, v := range variants {
		if s.name == "fairlead-nopark" && v.name != "plain" {
			continue
		}
		if v.name != "plain" {
			c.r.api.Put("services", clusterIPService(fmt.Sprintf("unrelated-%d", c.n), "10.96.254.1"))
		}
		var jobs []*job
		for _, t := range timeouts {
			j := c.job(s, "worker", 60*time.Second)
			j.timeout, j.start = time.Duration(t)*time.Second, v.start
			jobs = append(jobs, j)
		}
		if err := c.measure("sweep", s, v.name, publishAfter, jobs); err != nil {
			return err
		}
	}
	for _, publish := range []time.Duration{time.Second, 3 * time.Second} {
		if err := c.measure("oneshot", s, "", publish, []*job{c.job(s, "oneshot", 20*time.Second)}); err != nil {
			return err
		}
	}
	if s.server != "fairlead" {
		return nil
	}
	return c.measure("stall", s, "", publishAfter, []*job{c.job(s, "stall", 6*time.Second)})
}

func (c *cells) job(s subject, role string, limit time.Duration) *job {
	c.n++
	return &job{name: fmt.Sprintf("job%d", c.n), port: 20000 + 2*c.n, role: role, limit: limit, park: s.park}
}

// measure runs jobs. It retries once if the machine was too busy for the run to be
// valid.
func (c *cells) measure(what string, s subject, v string, publish time.Duration, jobs []*job) error {
	var err error
	for range 3 {
		var results map[*job][]reply
		if results, err = c.r.runJobs(c.ctx, jobs, publish); err != nil {
			if c.ctx.Err() != nil {
				return c.ctx.Err()
			}
			fmt.Fprintln(os.Stderr, "again:", err)
			continue
		}
		late := 0.0
		for _, list := range results {
			for _, r := range list {
				late = max(late, r.Late)
			}
		}
		if late > 0.5 {
			err = fmt.Errorf("%s %s: began %.1f s late", what, s.name, late)
			fmt.Fprintln(os.Stderr, "again:", err)
			for _, j := range jobs { // a name that was already queried is no longer new
				c.n++
				j.name, j.port = fmt.Sprintf("job%d", c.n), 20000+2*c.n
			}
			continue
		}
		return c.write(what, s, v, publish, results)
	}
	fmt.Fprintln(os.Stderr, "left out:", err)
	return nil
}

func (c *cells) write(what string, s subject, v string, publish time.Duration, results map[*job][]reply) error {
	enc := json.NewEncoder(c.r.out)
	for j, list := range results {
		m := measurement{What: what, Server: s.name, Variant: v, Publish: publish.Seconds(), Timeout: j.timeout.Seconds(), Round: c.round}
		for _, r := range list {
			m.Seconds, m.Late = max(m.Seconds, r.Seconds), max(m.Late, r.Late)
			if r.OK {
				m.OK++
			}
		}
		if err := enc.Encode(m); err != nil {
			return err
		}
	}
	return nil
}
