package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// subject is the Service proxy under test: a program and its arguments.
type subject struct {
	name string
	args []string
	bye  bool // it handles SIGTERM; kube-proxy does not and is ended by it
}

func newSubject(t *testing.T) subject {
	t.Helper()
	common := []string{"--proxy-mode=nftables", "--hostname-override=" + nodeName, "--cluster-cidr=" + netlab.ClusterCIDR4 + "," + netlab.ClusterCIDR6}
	switch name := os.Getenv("SUBJECT"); name {
	case "", "fairlead":
		bin := os.Getenv("FAIRLEAD_BIN")
		if bin == "" {
			bin = filepath.Join("..", "..", "bin", "fairlead")
		}
		return newProgram(t, "fairlead", bin, append([]string{"run"}, common...))
	case "kube-proxy":
		bin := filepath.Join(cacheBin(t), "kube-proxy")
		return newProgram(t, name, bin, append(common, "--conntrack-max-per-core=0", "--conntrack-min=0"))
	default:
		t.Fatalf("SUBJECT=%s: want fairlead or kube-proxy", name)
		return subject{}
	}
}

func newProgram(t *testing.T, name, bin string, args []string) subject {
	t.Helper()
	abs, err := filepath.Abs(bin)
	must(t, err)
	if _, err := os.Stat(abs); err != nil {
		t.Fatalf("find the subject: %v (make build makes fairlead, test/cluster/build.sh makes kube-proxy)", err)
	}
	return subject{name: name, args: append([]string{abs}, args...), bye: name == "fairlead"}
}

// agent runs the subject, one process after the other, all with the same arguments.
type agent struct {
	t    *testing.T
	bye  bool
	host *netlab.Host
	args []string
	log  string
	proc *netlab.Process
}

// start runs the subject in the node. The end of the test kills it at the latest.
func (a *agent) start() {
	a.t.Helper()
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(a.t, err)
	defer log.Close()
	cmd := exec.Command(a.args[0], a.args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	a.proc, err = a.host.Start(cmd)
	must(a.t, err)
}

// kill sends SIGKILL: the subject can do no cleanup.
func (a *agent) kill() { a.proc.Kill() }

// terminate sends SIGTERM. It fails the test if the subject does not exit in time or reports an error.
func (a *agent) terminate() {
	a.t.Helper()
	if !a.proc.Terminate(15 * time.Second) {
		a.t.Error("SIGTERM: the subject was still running after 15 s")
	} else if err := a.proc.Err(); err != nil && a.bye {
		a.t.Errorf("SIGTERM: the subject ended with %v", err)
	}
}

// mustLive fails the test if the subject has exited by itself.
func (a *agent) mustLive() {
	a.t.Helper()
	select {
	case <-a.proc.Done():
		a.t.Fatalf("the subject ended: %v", a.proc.Err())
	default:
	}
}

// said returns the subject's log so far.
func (a *agent) said() string {
	a.t.Helper()
	b, err := os.ReadFile(a.log)
	must(a.t, err)
	return string(b)
}

// finish ends the subject and, if the test failed, prints its log.
func (a *agent) finish() {
	if a.proc != nil {
		a.kill()
	}
	b, err := os.ReadFile(a.log)
	if !a.t.Failed() || err != nil {
		return
	}
	lines := strings.Split(string(b), "\n")
	a.t.Log(fmt.Sprintf("last lines of the subject's log:\n%s", strings.Join(lines[max(0, len(lines)-40):], "\n")))
}
