package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// subject is a proxy under measurement.
type subject struct {
	name  string // fairlead or kube-proxy
	mode  string // nftables, iptables-nft, iptables-legacy, ipvs, userspace
	bin   string
	dir   string // for its files
	flags []string

	cmd   *exec.Cmd
	ended chan error
	group string // its cgroup, which counts its children too
}

func (s *subject) String() string { return s.name + ":" + s.mode }

// start runs the program inside the node.
func (s *subject) start() error {
	config := filepath.Join(s.dir, "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: 'http://127.0.0.1:" + apiPort +
		"'}}]\nusers: [{name: x}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	mode, backend, some := strings.Cut(s.mode, "-")
	args := []string{s.bin}
	if s.name == "fairlead" {
		args = append(args, "run")
		if some {
			args = append(args, "--iptables-backend", backend)
		}
	} else {
		args = append(args, "--conntrack-min=0")
	}
	args = append(args, "--kubeconfig", config, "--proxy-mode", mode, "--hostname-override", nodeName, "--conntrack-max-per-core=0", "--cluster-cidr", podCIDR)
	if mode == "userspace" { // the client is another host: it connects to the Services' own addresses
		args = append(args, "--userspace-addresses", "service")
	}
	args = append(args, s.flags...)
	s.cmd = command("node", args...)
	path, err := s.programs(backend)
	if err != nil {
		return err
	}
	s.cmd.Env = append(os.Environ(), "PATH="+path, "XTABLES_LOCKFILE="+filepath.Join(s.dir, "xtables.lock"))
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.confine(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.cmd.Wait() }()
	return nil
}

// confine makes the program start in a cgroup of its own.
func (s *subject) confine() error {
	s.group = filepath.Join("/sys/fs/cgroup", fmt.Sprintf("modes-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := os.Mkdir(s.group, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(s.group)
	if err != nil {
		return err
	}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	return nil
}

// used returns the CPU time of the program and of all its children so far.
func (s *subject) used() time.Duration {
	b, err := os.ReadFile(filepath.Join(s.group, "cpu.stat"))
	if err != nil {
		return 0 // not started yet
	}
	for line := range strings.Lines(string(b)) {
		if us, ok := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); ok {
			n, _ := strconv.ParseInt(us, 10, 64) // the kernel writes a number
			return time.Duration(n) * time.Microsecond
		}
	}
	return 0
}

// settle waits until the program has no work left, and stops it. In userspace mode it must keep running.
func (s *subject) settle() error {
	s.quiet()
	if s.mode == "userspace" {
		return nil
	}
	return s.hold(true)
}

// programs returns a PATH on which the iptables names point to one backend. kube-proxy finds iptables through it; its ipvs mode
// needs one too.
func (s *subject) programs(backend string) (path string, err error) {
	if backend == "" {
		backend = "nft"
	}
	program, err := exec.LookPath("xtables-" + backend + "-multi")
	if err != nil {
		return "", err
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			if err := os.Symlink(program, filepath.Join(s.dir, family+verb)); err != nil && !errors.Is(err, os.ErrExist) {
				return "", err
			}
		}
	}
	return s.dir + ":" + os.Getenv("PATH"), nil
}

// hold stops the program (SIGSTOP) or lets it continue. The program cannot be in the middle of a change: the API sends no changes
// by now.
func (s *subject) hold(still bool) error {
	sig := syscall.SIGCONT
	if still {
		sig = syscall.SIGSTOP
	}
	return s.cmd.Process.Signal(sig) // ip has exec'd the program
}

// stop kills the program. Its rules stay.
func (s *subject) stop() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.ended
	s.ended <- nil // for a later check of failed
}

// failed returns an error with the reason if the program has ended, else nil.
func (s *subject) failed() error {
	select {
	case err := <-s.ended:
		s.ended <- err
		return fmt.Errorf("%s has ended: %w\n%s", s, err, s.said())
	default:
		return nil
	}
}

// synced waits until each of some Services answers. It returns an error if the program ends or ctx expires first.
func (s *subject) synced(ctx context.Context, addresses []string) error {
	for _, a := range addresses {
		for {
			err := tryOnce(a)
			if err == nil {
				break
			}
			if ended := s.failed(); ended != nil {
				return ended
			}
			select {
			case <-ctx.Done():
				_ = s.cmd.Process.Signal(syscall.SIGQUIT) // makes a Go program print its goroutines
				time.Sleep(time.Second)
				return fmt.Errorf("%s: %s does not answer: %w, %w\n%s", s, a, err, ctx.Err(), s.said())
			case <-time.After(200 * time.Millisecond): // bounded poll: there is no notification
			}
		}
	}
	return nil
}

// keepLog copies the program's log to the results. A running program first prints its goroutines to it.
func (s *subject) keepLog(file string) error {
	if s.cmd != nil && s.cmd.Process != nil && s.failed() == nil {
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // a Go program prints its goroutines and ends
		time.Sleep(time.Second)                   // the output is written by then; otherwise the copy lacks its end
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// said returns the end of the program's log.
func (s *subject) said() []byte {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log")) // without a log the error has less detail
	return text[max(0, len(text)-3000):]
}
