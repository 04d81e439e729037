package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// agent is the binary as a user runs it, on node-a of a lab.
type agent struct {
	binary, dir, log string
	lab              *netlab.Lab
	proc             *netlab.Process
}

func (a *agent) start(ctx context.Context) error {
	out, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(a.binary, "run", "--manifests", a.dir, "--hostname-override", "node-a", "--proxy-mode", "nftables",
		"--cluster-cidr", netlab.ClusterCIDR4+","+netlab.ClusterCIDR6)
	cmd.Stdout, cmd.Stderr = out, out
	if a.proc, err = a.lab.Node().Start(cmd); err != nil {
		return err
	}
	return a.settled(ctx, 3*time.Minute)
}

// settled waits until the agent has been idle for two seconds: nothing pending, and no further operation.
func (a *agent) settled(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last, since := -1.0, time.Now()
	for {
		operations, err := a.metric(ctx, "fairlead_operations_total")
		pending, err2 := a.metric(ctx, "fairlead_pending_objects")
		synced, err3 := a.metric(ctx, "kubeproxy_sync_proxy_rules_last_timestamp_seconds")
		err = errors.Join(err, err2, err3)
		switch {
		case err != nil && last >= 0: // the machine is busy: retry
		case err != nil || operations != last || pending > 0 || synced == 0:
			last, since = operations, time.Now()
		case time.Since(since) > 2*time.Second:
			return nil
		}
		select {
		case <-a.proc.Done():
			return fmt.Errorf("the agent ended by itself: %w", a.proc.Err())
		case <-ctx.Done():
			return fmt.Errorf("not settled within %s: %w (%g operations, %g pending)", limit, errors.Join(ctx.Err(), err), operations, pending)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (a *agent) metric(ctx context.Context, name string) (float64, error) {
	return kit.Metric(ctx, a.lab.Node(), name)
}

// within returns the share of changes that were in the kernel within the given time (a bound of the histogram) after the agent
// had read them.
func (a *agent) within(ctx context.Context, bound string) (float64, error) {
	_, _, body, err := kit.Get(ctx, a.lab.Node(), "http://127.0.0.1:10249/metrics")
	if err != nil {
		return 0, err
	}
	const name = "fairlead_receive_to_commit_duration_seconds"
	values := map[string]float64{}
	for line := range strings.Lines(body) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(key, name) {
			if values[key], err = strconv.ParseFloat(value, 64); err != nil {
				return 0, err
			}
		}
	}
	return values[name+`_bucket{le="`+bound+`"}`] / values[name+"_count"], nil
}

func (a *agent) stop() error {
	if !a.proc.Terminate(15 * time.Second) {
		return errors.New("the agent did not end within 15 s of SIGTERM")
	}
	return nil
}

// rss returns the resident memory in MiB.
func (a *agent) rss() (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.proc.Pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("no VmRSS in /proc/pid/status")
}
