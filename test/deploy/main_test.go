package deploy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// limit bounds each wait; on an idle machine all of them together take a few seconds.
func limit() time.Duration { return patience.Of(90 * time.Second) }

// agentBinary returns the path of the agent that `make build` built.
func agentBinary(t *testing.T) string {
	t.Helper()
	name := os.Getenv("FAIRLEAD_BIN")
	if name == "" {
		name = "../../bin/fairlead"
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(abs); err != nil {
		t.Fatalf("the agent is not built (make build): %v", err)
	}
	return abs
}

// cached returns the path of a program that prometheus.sh has put into the cache.
func cached(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("FAIRLEAD_CACHE")
	if dir == "" {
		dir = "../../.cache"
	}
	abs, err := filepath.Abs(filepath.Join(dir, "prometheus/usr/bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(abs); err != nil {
		t.Fatalf("run test/deploy/prometheus.sh first: %v", err)
	}
	return abs
}

// eventually waits until f succeeds.
func eventually(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit())
	defer cancel()
	var last error
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil { // an error caused by the end of the time limit itself carries no information
			last = err
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: not within %s: %v", what, limit(), last)
		}
		time.Sleep(50 * time.Millisecond) // bounded poll: another process cannot notify the test
	}
}

// machine is a node of a lab with the agent that the systemd unit describes.
type machine struct {
	lab  *netlab.Lab
	bin  string // a folder for PATH that contains fairlead
	http http.Client
}

// newMachine builds a lab: the agent programs the kernel of the network namespace in which it runs, and that must not be the
// one of the test.
func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it makes network namespaces and runs the agent in one")
	}
	lab, err := netlab.New(t.Context(), netlab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &machine{lab: lab, bin: t.TempDir()}
	m.http = http.Client{Transport: &http.Transport{DialContext: lab.Node().Dial, DisableKeepAlives: true}, Timeout: patience.Of(10 * time.Second)}
	if err := os.Symlink(agentBinary(t), filepath.Join(m.bin, "fairlead")); err != nil {
		t.Fatal(err)
	}
	return m
}

// start runs a program in the node's namespace for the duration of the test, and returns the path of its log.
func (m *machine) start(t *testing.T, name string, args ...string) (log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), filepath.Base(name)+".log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	p, err := m.lab.Node().Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Terminate(patience.Of(20 * time.Second))
		_ = out.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("%s wrote:\n%s", name, text)
		}
	})
	return log
}

// get sends a request to a server on the node's loopback address.
func (m *machine) get(ctx context.Context, port int, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", fmt.Sprint(port))+path, nil)
	if err != nil {
		return nil, err
	}
	return m.http.Do(r)
}

// ready waits for a page that answers 200.
func (m *machine) ready(t *testing.T, port int, path string) {
	t.Helper()
	eventually(t, path+" answers", func(ctx context.Context) error {
		a, err := m.get(ctx, port, path)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		if a.StatusCode != http.StatusOK {
			return errors.New(a.Status)
		}
		return nil
	})
}

// startAgent starts the agent as the systemd unit does, with the examples.
func (m *machine) startAgent(t *testing.T) {
	t.Helper()
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	command := unitCommand(t)
	for i, a := range command {
		command[i] = strings.NewReplacer("/etc/fairlead/manifests", examples, "%H", "node-a").Replace(a)
	}
	// The conntrack limits belong to the machine, not to the lab.
	m.start(t, filepath.Join(m.bin, "fairlead"), append(command[1:], "--conntrack-max-per-core=0", "--conntrack-min=0",
		"--cluster-cidr="+netlab.ClusterCIDR4+","+netlab.ClusterCIDR6)...)
	m.ready(t, 10256, "/readyz")
}

// unitCommand returns the command line of the systemd unit.
func unitCommand(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(deployDir + "/systemd/fairlead.service")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			return strings.Fields(command)
		}
	}
	t.Fatal("the unit has no ExecStart")
	return nil
}
