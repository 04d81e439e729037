package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// trial measures one subject while the number of Services grows. The first number at which the subject fails ends the trial: larger
// ones would fail too.
func (o *options) trial(name string, sizes []int) error {
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return err
	}
	c := newCluster(o.each)
	l, err := newLab(c.api)
	if err != nil {
		return err
	}
	defer func() { _ = l.close() }() // the machine ends soon
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := command("server", self, "serve")
	if err := server.Start(); err != nil {
		return err
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }() // Wait always reports the kill
	dir, err := os.MkdirTemp("", "modes-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the machine ends soon
	s := o.subject(name, dir)
	defer s.stop()
	for _, n := range sizes {
		r := record{Kernel: unix.ByteSliceToString(kernel.Release[:]), Subject: name, Services: n}
		err := o.size(&r, s, c, self)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s, %d Services: %v\n", name, n, err)
			r.Failed = err.Error()
			if err := s.keepLog(fmt.Sprintf("%s.%s-%d.log", o.out, strings.ReplaceAll(name, ":", "-"), n)); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		if kept := o.keep(&r); err != nil || kept != nil {
			return kept
		}
	}
	return nil
}

// size measures one number of Services.
func (o *options) size(r *record, s *subject, c *cluster, self string) (err error) {
	before := c.services
	r.Endpoints = c.grow(r.Services)
	if s.cmd == nil {
		err = s.start()
	} else {
		err = s.hold(false)
	}
	if err == nil {
		err = o.sync(r, s, before)
	}
	switch {
	case err != nil:
	case o.changes > 0:
		r.Changes, err = o.measureChanges(s, c)
	default:
		err = o.measureConnections(r, s, self)
	}
	return err
}

func (o *options) subject(name, dir string) *subject {
	program, mode, _ := strings.Cut(name, ":")
	s := &subject{name: program, mode: mode, bin: o.fairlead, dir: dir, flags: o.flags}
	if program != "fairlead" {
		s.bin = o.kubeProxy
	}
	if !filepath.IsAbs(s.bin) {
		if abs, err := filepath.Abs(s.bin); err == nil {
			s.bin = abs
		}
	}
	return s
}

// sync waits until the new Services are served.
func (o *options) sync(r *record, s *subject, before int) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.limit)
	defer cancel()
	var fresh []string
	for i := max(before, large); i < r.Services; i++ {
		if i%max(1, r.Services/20) == 0 || i == r.Services-1 {
			fresh = append(fresh, serviceIP(i))
		}
	}
	start, cpu := time.Now(), s.used()
	err := s.synced(ctx, fresh)
	if err == nil { // kube-proxy's ipvs mode serves long before its rules are complete
		err = s.caughtUp(o.limit)
	}
	r.SyncSeconds, r.SyncCPU = time.Since(start).Seconds(), (s.used() - cpu).Seconds()
	fmt.Printf("%s, %d Services: in sync after %.0f s, %.1f s of CPU time\n", s, r.Services, r.SyncSeconds, r.SyncCPU)
	return err
}

func (o *options) measureConnections(r *record, s *subject, self string) error {
	if err := s.settle(); err != nil {
		return err
	}
	var all []string
	for i := large; i < r.Services; i++ {
		all = append(all, serviceIP(i))
	}
	order, err := s.order(all)
	if err != nil {
		return err
	}
	if r.AB, err = bench(order[len(order)/2], o.requests, o.clients); err != nil {
		return err
	}
	q := question{Times: o.connects, Targets: map[string][]string{
		"direct": {endpointIP(0) + ":" + strconv.Itoa(endpointPort)}, "first": withPort(order[:1]), "last": withPort(order[len(order)-1:]), "random": withPort(all)}}
	if r.Connect, err = ask(self, q); err != nil {
		return err
	}
	return o.takeAway(r, self, q)
}

// takeAway changes the node while the subject is stopped, one change after the other, and measures again after each. The differences
// are the cost of one rule.
func (o *options) takeAway(r *record, self string, q question) error {
	for line := range strings.Lines(o.then) {
		said, err := command("node", "bash", "-c", line).Output()
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		s, err := ask(self, q)
		if err != nil {
			return fmt.Errorf("after %s: %w", line, err)
		}
		r.Then = append(r.Then, after{Command: strings.TrimSpace(line), Said: string(said), Connect: s})
	}
	return nil
}

func withPort(addresses []string) (out []string) {
	for _, a := range addresses {
		out = append(out, a+":"+strconv.Itoa(servicePort))
	}
	return out
}

// tryOnce connects from the client and returns an error if the Service does not answer.
func tryOnce(address string) error {
	return inside("client", func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(address, strconv.Itoa(servicePort)), time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}
