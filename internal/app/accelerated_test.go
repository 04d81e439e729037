package app

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/test/flowlab"
	scaled "github.com/fairlead/fairlead/test/patience"
)

// TestAccelerated: an agent with acceleration, from its start to its end, with packets, in each mode that has it.
func TestAccelerated(t *testing.T) {
	inAcceleratedModes(t, func(n *acceleratedNode) {
		n.shortOnesLeaveItAsleep()
		streams := n.longOnesWakeIt()
		n.rulesHoldAsWithout()
		n.linksComeAndGo(streams)
		n.linkTakesLess()
		n.isKilled()
		n.thresholdsChange()
		n.losesEndpoint()
		n.isSwitchedOff()
	})
}

// inAcceleratedModes runs a test on a node whose agent has begun, in each mode that has acceleration.
func inAcceleratedModes(t *testing.T, test func(*acceleratedNode)) {
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			flowlab.Enter(t)
			n := newAcceleratedNode(t, mode)
			n.begin("20")
			test(n)
		})
	}
}

// acceleratedNode is a flowlab whose node runs an agent.
type acceleratedNode struct {
	*flowlab.Lab
	mode, dir string
	k         *nft.Conn
	agent     *process
	born      time.Time
	// What the manifests say: the endpoint of web (1 or 2), from where guarded may be asked, and after how many packets connections to
	// sticky are taken over.
	end, from, own string
}

func newAcceleratedNode(t *testing.T, mode string) *acceleratedNode {
	t.Helper()
	n := &acceleratedNode{Lab: flowlab.New(t), mode: mode, born: time.Now(), dir: t.TempDir(), end: "1", from: "10.2.0.0/24", own: "20"}
	var err error
	if n.k, err = nft.Open(nft.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.k.Close() })
	n.write()
	return n
}

// begin starts an agent. No threshold: without acceleration.
func (n *acceleratedNode) begin(threshold string) {
	n.Helper()
	n.agent = begin(n.T, n.args(threshold)...)
	n.agent.says("in sync")
}

func (n *acceleratedNode) args(threshold string) []string {
	args := agentArgs(n.dir, "--proxy-mode", n.mode, "--bind-address", "10.2.0.1", "--cluster-cidr", "10.2.0.0/24,fd02::/64")
	if threshold != "" {
		args = append(args, "--feature-gates=KubeProxyAcceleration=true", "--offload-packet-threshold", threshold)
	}
	return args
}

// write writes the manifests, and gives the moment after which the agent can know.
func (n *acceleratedNode) write() time.Time {
	n.Helper()
	text := strings.NewReplacer("END", n.end, "FROM", n.from, "OWN", n.own).Replace(acceleratedManifests)
	tmp := filepath.Join(n.dir, ".services.tmp")
	if err := errors.Join(os.WriteFile(tmp, []byte(text), 0o644), os.Rename(tmp, filepath.Join(n.dir, "services.yaml"))); err != nil {
		n.Fatal(err)
	}
	return time.Now()
}

// operations is how much this agent has written so far.
func (n *acceleratedNode) operations() string {
	n.Helper()
	return n.metric("fairlead_operations_total")
}

func (n *acceleratedNode) metric(name string) string {
	n.Helper()
	c, err := net.DialTimeout("tcp", "127.0.0.1:10249", patience)
	if err != nil {
		n.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it was only read
	_ = c.SetDeadline(time.Now().Add(scaled.Of(patience)))
	fmt.Fprint(c, "GET /metrics HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(c)
	for line := range strings.Lines(string(answer)) {
		if f := strings.Fields(line); len(f) == 2 && (f[0] == name || strings.HasPrefix(f[0], name+"{")) {
			return f[1]
		}
	}
	n.Fatalf("no %s, %v:\n%s", name, err, answer)
	return ""
}

// devices are those of both flowtables, sorted; the same in both.
func (n *acceleratedNode) devices() (string, error) {
	var of [2]string
	for i, family := range []nft.Family{nft.IPv4, nft.IPv6} {
		list, err := n.k.Flowtables(n.Context(), nft.TableRef{Family: family, Name: "fairlead-offload"})
		for tries := 0; errors.Is(err, nft.ErrInterrupted) && tries < 100; tries++ { // the agent writes just now
			list, err = n.k.Flowtables(n.Context(), nft.TableRef{Family: family, Name: "fairlead-offload"})
		}
		if err != nil || len(list) != 1 {
			return "", fmt.Errorf("%d flowtables: %w", len(list), err)
		}
		slices.Sort(list[0].Devices)
		of[i] = strings.Join(list[0].Devices, " ")
	}
	if of[0] != of[1] {
		return "", fmt.Errorf("the families have different devices: %v", of)
	}
	return of[0], nil
}

func (n *acceleratedNode) wantDevices(when, want string) {
	n.Helper()
	eventually(n.T, when+", the fast path has the devices "+want, func() error {
		got, err := n.devices()
		if err == nil && got != want {
			err = fmt.Errorf("it has %q", got)
		}
		return err
	})
}

func (n *acceleratedNode) fast(when string, streams ...flowlab.Stream) {
	n.Helper()
	n.Log(time.Since(n.born).Round(time.Millisecond), when)
	for _, s := range streams {
		if !s.Fast() {
			n.Fatalf("%s: packets of %s %s pass the forward hook", when, s.Network, s.Addr)
		}
	}
}

// dial tries to begin a connection of the client.
func (n *acceleratedNode) dial(addr string) (err error) {
	n.In(n.Client, func() error {
		var c net.Conn
		if c, err = net.DialTimeout("tcp", addr, scaled.Of(300*time.Millisecond)); err == nil {
			_ = c.Close()
		}
		return nil
	})
	return err
}
