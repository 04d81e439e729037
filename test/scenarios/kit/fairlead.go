package kit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// Limits for the agent: to be in sync after its start, to exit after SIGTERM, to apply one change to the kernel. They distinguish a hang from a slow
// machine: with twenty busy processes running concurrently, 10 s to exit was too short three times.
const (
	startLimit  = 45 * time.Second
	endLimit    = 30 * time.Second
	settleLimit = 30 * time.Second
)

// Fairlead is the agent of this repository, run with a user's command: `fairlead run --manifests DIR …` on node-a.
type Fairlead struct {
	// Binary is the path of the agent.
	Binary string
	// Env is added to the agent's environment.
	Env []string

	setup  Setup
	dir    string
	proc   *netlab.Process
	log    buffer
	canary Canary
}

var _ Subject = (*Fairlead)(nil)

// Name implements Subject.
func (f *Fairlead) Name() string { return "fairlead" }

// Start implements Subject.
func (f *Fairlead) Start(ctx context.Context, s Setup) error {
	f.setup, f.canary = s, Canary{}
	f.log.reset()
	dir, err := os.MkdirTemp("", "fairlead-scenario-")
	if err != nil {
		return err
	}
	f.dir = dir
	for _, file := range append(s.Files, f.canary.Next()) {
		if err := f.write(file); err != nil {
			return err
		}
	}
	return f.launch(ctx)
}

// launch starts the process and waits until the agent has synced once and serves the canary.
func (f *Fairlead) launch(ctx context.Context) error {
	args := append([]string{"run", "--manifests", f.dir, "--hostname-override", "node-a",
		"--cluster-cidr", netlab.ClusterCIDR4 + "," + netlab.ClusterCIDR6}, append(modeFlags(f.setup.Mode), f.setup.Flags...)...)
	cmd := exec.Command(f.Binary, args...)
	cmd.Env = append(os.Environ(), f.Env...)
	cmd.Stdout, cmd.Stderr = &f.log, &f.log
	proc, err := f.setup.Lab.Node().Start(cmd)
	if err != nil {
		return err
	}
	f.proc = proc
	ctx, cancel := context.WithTimeout(ctx, patience.Of(startLimit))
	defer cancel()
	for {
		err := f.synced(ctx)
		if err == nil {
			return f.canary.Wait(ctx, f.setup.Lab, settleLimit)
		}
		select {
		case <-f.proc.Done():
			return fmt.Errorf("the agent ended by itself: %v\n%s", f.proc.Err(), f.tail())
		case <-ctx.Done():
			return fmt.Errorf("not in sync within %s: %w\n%s", patience.Of(startLimit), err, f.tail())
		case <-time.After(patience.Pause(10 * time.Millisecond)):
		}
	}
}

// synced checks through the agent's own endpoints that it is healthy and has completed at least one sync.
func (f *Fairlead) synced(ctx context.Context) error {
	node := f.setup.Lab.Node()
	status, _, body, err := Get(ctx, node, "http://127.0.0.1:10256/livez")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("livez answers %d: %.200s", status, body)
	}
	at, err := Metric(ctx, node, "kubeproxy_sync_proxy_rules_last_timestamp_seconds")
	if err == nil && at == 0 {
		err = fmt.Errorf("no sync yet")
	}
	return err
}

// Restart implements Subject.
func (f *Fairlead) Restart(ctx context.Context, kill bool) error {
	if kill {
		f.proc.Kill()
	} else if err := f.Halt(ctx); err != nil {
		return err
	}
	return f.launch(ctx)
}

// Halt implements Subject.
func (f *Fairlead) Halt(context.Context) error {
	if !f.proc.Terminate(patience.Of(endLimit)) {
		return fmt.Errorf("the agent did not end within %s of SIGTERM\n%s", patience.Of(endLimit), f.Log())
	}
	return nil
}

// Kill sends SIGKILL to the agent and returns when the process has ended.
func (f *Fairlead) Kill() { f.proc.Kill() }

// Resume implements Subject.
func (f *Fairlead) Resume(ctx context.Context) error { return f.launch(ctx) }

// Apply implements Subject. It moves files into place by rename, so that the agent never reads a partly written one.
func (f *Fairlead) Apply(ctx context.Context, files []File) error {
	for _, file := range files {
		if err := f.write(file); err != nil {
			return err
		}
	}
	return f.settle(ctx)
}

// Delete implements Subject.
func (f *Fairlead) Delete(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
			return err
		}
	}
	return f.settle(ctx)
}

func (f *Fairlead) settle(ctx context.Context) error {
	if err := f.write(f.canary.Next()); err != nil {
		return err
	}
	select {
	case <-f.proc.Done():
		return nil // changed while the agent is stopped: it reads the files at its start
	default:
	}
	if err := f.canary.Wait(ctx, f.setup.Lab, settleLimit); err != nil {
		return fmt.Errorf("%w\n%s", err, f.tail())
	}
	return nil
}

func (f *Fairlead) write(file File) error {
	tmp := filepath.Join(f.dir, "."+file.Name+".tmp")
	if err := os.WriteFile(tmp, []byte(file.Data), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(f.dir, file.Name))
}

// Cleanup implements Subject.
func (f *Fairlead) Cleanup(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(commandTimeout))
	defer cancel()
	_, err := f.setup.Lab.Node().Run(ctx, f.Binary, "cleanup")
	return err
}

// Stop implements Subject. It checks that cleanup leaves no table, then flushes conntrack for the next scenario.
func (f *Fairlead) Stop(ctx context.Context) error {
	if f.dir == "" {
		return nil
	}
	defer os.RemoveAll(f.dir)
	f.dir = ""
	if f.proc != nil {
		f.proc.Terminate(patience.Of(endLimit))
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(commandTimeout))
	defer cancel()
	if err := f.Cleanup(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return errors.Join(chainsLeft(ctx, f.setup.Lab, f.setup.Mode), SweepNode(ctx, f.setup.Lab))
}

// Log implements Subject.
func (f *Fairlead) Log() string { return f.log.String() }

func (f *Fairlead) tail() string { return tail(f.Log(), 12) }

// SweepNode deletes node-a's tables and conntrack entries, so that the next scenario starts clean. It reports the agent's tables that were left.
func SweepNode(ctx context.Context, lab *netlab.Lab) error {
	tables, err := lab.Node().Run(ctx, "nft", "list", "tables")
	if err != nil {
		return err
	}
	if _, err := lab.Node().Run(ctx, "nft", "flush", "ruleset"); err != nil {
		return err
	}
	if err := lab.FlushConntrack(lab.Node().Name); err != nil {
		return err
	}
	if strings.Contains(tables, "fairlead") {
		return fmt.Errorf("clean-up left tables behind: %s", strings.TrimSpace(tables))
	}
	return nil
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "      | " + strings.Join(all, "\n      | ")
}

// buffer collects a process's output. It is safe for concurrent use.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *buffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}
