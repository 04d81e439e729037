package netlab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netns"
)

// Process is a command that runs inside a namespace.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts cmd inside the namespace. The kernel kills it when this process dies, so that a crashed test leaves no process running.
func (h *Host) Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	go func() {
		// The kernel sends the parent-death signal when the starting THREAD ends, so this one stays locked until the child ends.
		runtime.LockOSThread()
		err := netns.Set(h.handle)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", cmd.Path, h.NetNS, err)
	}
	return p, nil
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the error of Wait. It is valid only after Done is closed.
func (p *Process) Err() error { return p.err }

// Kill sends SIGKILL and waits for the end of the process.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(os.Kill)
	<-p.done
}

// Terminate sends SIGTERM and waits up to grace, then sends SIGQUIT, then SIGKILL. It reports whether the process ended by itself.
func (p *Process) Terminate(grace time.Duration) bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return true
	case <-time.After(grace):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // a Go program prints its goroutines and exits
		select {
		case <-p.done:
		case <-time.After(time.Second):
			p.Kill()
		}
		return false
	}
}

// Run runs a command inside the namespace until it exits and returns its output to stdout and stderr. The error includes the last lines.
func (h *Host) Run(ctx context.Context, name string, args ...string) (string, error) {
	var out strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := h.Start(cmd)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
		return out.String(), fmt.Errorf("run %s in %s: %w", name, h.Name, ctx.Err())
	}
	if p.Err() != nil {
		return out.String(), fmt.Errorf("run %s %s in %s: %w: %s", name, strings.Join(args, " "), h.Name, p.Err(), lastLines(out.String()))
	}
	return out.String(), nil
}

func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-4):], "\n")
}
