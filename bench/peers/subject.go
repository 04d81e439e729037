package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// subject is one proxy on one node, started and stopped several times.
type subject struct {
	name    string
	node    *node
	group   *cgroup
	args    []string
	program string
	env     []string
	log     string
	proc    *netlab.Process
	started time.Time
}

// command returns the command line of a subject. kube-proxy gets the defaults of its flags too, except for the sizes
// of the connection table, which a namespace cannot set.
func (o options) command(name string) ([]string, error) {
	common := []string{"--hostname-override=" + nodeName, "--cluster-cidr=" + clusterCIDR, "--metrics-bind-address=0.0.0.0:10249"}
	proxy := append([]string{filepath.Join(o.bin, "kube-proxy"), "--conntrack-max-per-core=0", "--conntrack-min=0", "--v=2"}, common...)
	switch name {
	case "fairlead":
		return append(append([]string{o.fairlead, "run"}, common...), o.flags...), nil
	case "nftables":
		return append(proxy, "--proxy-mode=nftables"), nil
	case "iptables-nft", "iptables-legacy":
		return append(proxy, "--proxy-mode=iptables"), nil
	}
	return nil, fmt.Errorf("subject %q: want nftables, iptables-nft, iptables-legacy or fairlead", name)
}

func newSubject(c *control, n *node, name string, size int) (*subject, error) {
	line, err := c.command(name)
	if err != nil {
		return nil, err
	}
	s := &subject{name: name, node: n, program: line[0], log: filepath.Join(filepath.Dir(c.out), "logs", fmt.Sprintf("%s-%d.log", name, size))}
	if err := os.MkdirAll(filepath.Dir(s.log), 0o755); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(s.log); err != nil {
		return nil, err
	}
	if s.group, err = newCgroup("subject"); err != nil {
		return nil, err
	}
	s.args = append(append(s.group.wrap(), line...), "--kubeconfig="+c.kubeconfig)
	// The default lock file is shared by all network namespaces of the machine.
	s.env = []string{"XTABLES_LOCKFILE=" + filepath.Join(c.dir, "xtables.lock")}
	if flavour, ok := map[string]string{"iptables-nft": "nft", "iptables-legacy": "legacy"}[name]; ok {
		dir, err := iptablesFolder(c.dir, flavour)
		if err != nil {
			return nil, err
		}
		s.env = append(s.env, "PATH="+dir+":"+os.Getenv("PATH"))
	}
	return s, nil
}

// iptablesFolder creates a folder with the program names of one of the two iptables backends.
func iptablesFolder(dir, flavour string) (string, error) {
	program, err := exec.LookPath("xtables-" + flavour + "-multi")
	if err != nil {
		return "", fmt.Errorf("find iptables with the %s back end: %w", flavour, err)
	}
	dir = filepath.Join(dir, "iptables-"+flavour)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			return "", err
		}
	}
	return dir, nil
}

func (s *subject) start() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.args[0], s.args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), s.env...), log, log
	// The pages of the executable are charged to the first cgroup that touches them. That must be no subject's cgroup.
	if err := readAll(s.program); err != nil {
		return err
	}
	s.group.resetPeak()
	s.started = time.Now()
	s.proc, err = s.node.host.Start(cmd)
	return err
}

func readAll(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	return err
}

// stop ends the subject and waits until its children are gone too, so that their CPU time counts for the right phase.
func (s *subject) stop() {
	if s.proc == nil {
		return
	}
	s.proc.Terminate(15 * time.Second)
	s.proc = nil
	for range 200 {
		if b, err := os.ReadFile(s.group.cpu + "/cgroup.procs"); err != nil || len(b) == 0 {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// synced waits until the subject's own metric reports that it has synced, and returns how long that took by that
// metric.
func (s *subject) synced(ctx context.Context) (seconds float64, err error) {
	for {
		if p, err := scrape(ctx, s.node.host); err == nil {
			if at, err := p.value(lastSync); err == nil && at > 0 {
				return at - float64(s.started.UnixNano())/1e9, nil
			}
		}
		select {
		case <-s.proc.Done():
			return 0, fmt.Errorf("%s ended (%v), see %s", s.name, s.proc.Err(), s.log)
		default:
		}
		if !pause(ctx, 50*time.Millisecond) {
			return 0, errNoSync
		}
	}
}
