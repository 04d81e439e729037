package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/handover"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// shop is a Service of two backends, TCP and UDP, that remembers its clients.
const shop = `apiVersion: v1
kind: Service
metadata: {name: shop, namespace: demo}
spec:
  clusterIP: 10.96.0.20
  clusterIPs: ["10.96.0.20"]
  ipFamilies: [IPv4]
  sessionAffinity: ClientIP
  ports:
  - {name: http, protocol: TCP, port: 8080, targetPort: 9090}
  - {name: udp, protocol: UDP, port: 8080, targetPort: 9090}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-v4, namespace: demo, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports:
- {name: http, protocol: TCP, port: 9090}
- {name: udp, protocol: UDP, port: 9090}
endpoints:
- {addresses: ["127.1.1.1"], nodeName: node-a, conditions: {ready: true}}
- {addresses: ["127.1.1.2"], nodeName: node-a, conditions: {ready: true}}
- {addresses: ["127.1.1.3"], nodeName: node-a, conditions: {ready: true}}
- {addresses: ["127.1.1.4"], nodeName: node-a, conditions: {ready: true}}
`

const shopAt = "127.96.0.20:8080"

// userspaceArgs are for an agent that serves the shop, whose backends begin with it.
func userspaceArgs(t *testing.T) []string {
	t.Helper()
	for i := range 4 {
		shopBackend(t, fmt.Sprintf("127.1.1.%d:9090", i+1))
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(shop), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"run", "--proxy-mode", "userspace", "--userspace-addresses", "loopback", "--manifests", dir, "--hostname-override", "node-a", "--takeover"}
}

// shopBackend says its address for each line; by UDP, its address and the client's.
func shopBackend(t *testing.T, at string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), u.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				for lines := bufio.NewScanner(c); lines.Scan(); {
					_, _ = fmt.Fprintln(c, at)
				}
				_ = c.Close()
			}()
		}
	}()
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = u.WriteTo([]byte(at+" "+from.String()), from)
		}
	}()
}

// say sends a line and gives the answer.
func say(c net.Conn) (string, error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return "", err
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return strings.TrimSpace(string(buf[:n])), err
}

// request is one whole connection.
func request() (string, error) {
	c, err := net.DialTimeout("tcp", shopAt, patience)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // the answer is what counts
	return say(c)
}

// shoppers send requests, 200 a second in all if the machine can, until they are to leave.
// One that fails is the test's failure.
func shoppers(t *testing.T, want string) *crowd {
	t.Helper()
	c := &crowd{quit: make(chan struct{})}
	for range 4 {
		c.all.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-c.quit:
					return
				case <-tick.C:
				}
				if got, err := request(); (err != nil || got != want) && c.failed.Add(1) < 5 {
					t.Errorf("request %d: %q, %v; the client's endpoint is %s", c.done.Load(), got, err, want)
				}
				c.done.Add(1)
			}
		})
	}
	return c
}

type crowd struct {
	done, failed atomic.Int64
	quit         chan struct{}
	all          sync.WaitGroup
}

// leave ends them; the agents must be there until then.
func (c *crowd) leave() { close(c.quit); c.all.Wait() }

// more waits until they have sent some more.
func (c *crowd) more(t *testing.T, n int64) {
	t.Helper()
	enough := c.done.Load() + n
	eventually(t, "more requests are sent", func() error {
		if got := c.done.Load(); got < enough {
			return fmt.Errorf("%d of %d", got, enough)
		}
		return nil
	})
}

func open(t *testing.T, network string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, shopAt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func ask(t *testing.T, c net.Conn) string {
	t.Helper()
	var got string
	eventually(t, "there is an answer", func() (err error) { got, err = say(c); return err })
	return got
}

// TestHandover: one agent after the other goes on with the sockets. No request is refused
// or meets another endpoint, an old connection and a UDP client notice nothing, and each
// agent ends once its last connection has.
func TestHandover(t *testing.T) {
	args := userspaceArgs(t)
	old := begin(t, args...)
	old.says("in sync")
	var want string
	eventually(t, "the shop answers", func() (err error) { want, err = request(); return err })
	stream, flow := open(t, "tcp"), open(t, "udp")
	ask(t, stream)
	met := ask(t, flow) // the backend's address, and the client's as the backend sees it
	crowd := shoppers(t, want)
	defer crowd.leave()
	agents := []*process{old}
	for range 4 {
		next := begin(t, args...)
		next.says("took over")
		agents[len(agents)-1].says("handed over")
		agents = append(agents, next)
		if got := ask(t, stream); got != want {
			t.Errorf("the old connection meets %q, want %q", got, want)
		}
		if got := ask(t, flow); got != met {
			t.Errorf("the UDP client meets %q, before it was %q", got, met)
		}
		crowd.more(t, 20)
	}
	for _, p := range agents[1:4] { // what they carried were requests, which end
		if c := p.code(); c != 0 {
			t.Errorf("an agent that has handed over ends with status %d", c)
		}
	}
	select {
	case <-old.done:
		t.Error("the first agent has ended, and its connection with it")
	default:
	}
	_ = stream.Close()
	if c := old.code(); c != 0 || !strings.Contains(old.log(), "all connections have ended") {
		t.Errorf("the first agent ends with status %d", c)
	}
}

// Two heirs that begin at once take over one after the other, nobody is refused, and in
// the end one agent runs.
func TestTwoHeirs(t *testing.T) {
	args := userspaceArgs(t)
	old := begin(t, args...)
	old.says("in sync")
	var want string
	eventually(t, "the shop answers", func() (err error) { want, err = request(); return err })
	crowd := shoppers(t, want)
	defer crowd.leave()
	for range 3 {
		first, second := begin(t, args...), begin(t, args...)
		first.says("took over")
		second.says("took over")
		if c := old.code(); c != 0 {
			t.Errorf("the agent that was there ends with status %d", c)
		}
		select {
		case <-first.done:
			first, old = second, first
		case <-second.done:
			second, old = first, second
		case <-time.After(patience):
			t.Fatal("both heirs go on")
		}
		if c := old.code(); c != 0 {
			t.Errorf("the heir that was first ends with status %d", c)
		}
		old = first
		crowd.more(t, 20)
	}
}

// An heir whose predecessor is killed while it hands over goes on by itself.
func TestPredecessorIsKilled(t *testing.T) {
	args := userspaceArgs(t)
	for range 3 {
		old := begin(t, args...)
		old.says("in sync")
		eventually(t, "the shop answers", func() error { _, err := request(); return err })
		next := begin(t, args...)
		next.says("starting")
		_ = old.cmd.Process.Kill()
		<-old.done
		eventually(t, "the next agent serves", func() error { _, err := request(); return err })
		next.terminate()
	}
}

// TestHandoverThatFails leaves the agent that runs as it is.
func TestHandoverThatFails(t *testing.T) {
	args := userspaceArgs(t)
	p := begin(t, args...)
	p.says("in sync")
	var want string
	eventually(t, "the shop answers", func() (err error) { want, err = request(); return err })
	flow := open(t, "udp")
	met := ask(t, flow)
	crowd := shoppers(t, want)
	defer crowd.leave()
	for i := range 10 {
		var err error
		eventually(t, "the agent is asked", func() error {
			_, err = handover.Ask(t.Context(), patience, func([]handover.Item) error { return errors.New("of no use, says the test") })
			if errors.Is(err, handover.ErrNobody) {
				return err
			}
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "says the test") {
			t.Fatalf("handover %d: %v", i, err)
		}
		if got := ask(t, flow); got != met {
			t.Errorf("the UDP client meets %q, before it was %q", got, met)
		}
		crowd.more(t, 5)
	}
	p.says("handover failed")
}

// An agent that writes rules has nothing to hand over.
func TestNoHandoverFromAnotherMode(t *testing.T) {
	p := begin(t, "run", "--manifests", t.TempDir(), "--hostname-override", "node-a")
	p.says("starting")
	code, out := run(t, "run", "--proxy-mode", "userspace", "--manifests", t.TempDir(), "--hostname-override", "node-a", "--takeover")
	if code != 1 || !strings.Contains(out, "does not support a handover") {
		t.Errorf("status %d:\n%s", code, out)
	}
	p.terminate()
}

// A predecessor that is just taking over itself has no socket for a moment: only a second without an agent means that there is none.
func TestAgentAbsentForAMoment(t *testing.T) {
	netnstest.Enter(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*becoming)
	defer cancel()
	if _, err := askPatiently(ctx, func([]handover.Item) error { return nil }); err == nil || errors.Is(err, handover.ErrNobody) {
		t.Errorf("after %s: %v, want the end of the context", 3*becoming, err)
	}
}
