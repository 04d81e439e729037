package takeover

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// ClusterIP and NodePort are the addresses of the Service of Manifests, in TCP and UDP.
var (
	ClusterIP = netip.MustParseAddrPort("10.96.0.10:80")
	NodePort  = netip.MustParseAddrPort("172.18.0.2:30080")
)

// requestLimit bounds a request. It is long, so that no request is lost on a busy machine. A datagram is not sent again, so a gap still loses it.
const requestLimit = 20 * time.Second

// Traffic is the traffic during a takeover: a TCP stream, a UDP flow from one port, and 200 requests a second, each on its own flow, half of them TCP
// and half UDP, to a ClusterIP and a NodePort.
type Traffic struct {
	client *netlab.Host
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	pause  time.Duration // the interval between two requests
	done   sync.WaitGroup

	mu       sync.Mutex
	answered map[string]int
	lost     []string
	since    time.Time // requests that began earlier do not count as lost
}

// Start starts the traffic, from a client; it ends with the test.
func Start(t *testing.T, client *netlab.Host) *Traffic {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	tr := &Traffic{client: client, ctx: ctx, cancel: stop, pause: min(patience.Of(5*time.Millisecond), 100*time.Millisecond), answered: map[string]int{}}
	tr.Open(t, "")
	tr.done.Go(func() { tr.requests(ctx) })
	t.Cleanup(tr.Stop)
	return tr
}

// Open starts another stream and another UDP flow, with the suffix which in their names.
func (tr *Traffic) Open(t *testing.T, which string) {
	t.Helper()
	for name, proto := range map[string]netlab.Protocol{"stream": netlab.TCP, "UDP flow": netlab.UDP} {
		flow, err := tr.client.Open(tr.ctx, proto, ClusterIP)
		if err != nil {
			t.Fatal(err)
		}
		tr.done.Go(func() {
			defer flow.Close()
			for tr.ctx.Err() == nil {
				tr.note(tr.ctx, name+which, flow.Ask)
				pause(tr.ctx, 2*tr.pause)
			}
		})
	}
}

// Stop stops the traffic and waits for the pending requests.
func (tr *Traffic) Stop() {
	tr.cancel()
	tr.done.Wait()
}

// requests starts one request every 5 ms (less often on a slow machine), without waiting for the others.
func (tr *Traffic) requests(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(tr.pause)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		proto := []netlab.Protocol{netlab.TCP, netlab.UDP}[i%2]
		to := []netip.AddrPort{ClusterIP, NodePort}[i/2%2]
		all.Go(func() {
			tr.note(ctx, fmt.Sprintf("%s request to %s", proto, to), func(ctx context.Context) netlab.Reply { return tr.client.Ask(ctx, proto, to) })
		})
	}
}

// note sends one request and counts it. The end of the traffic does not interrupt it.
func (tr *Traffic) note(ctx context.Context, name string, ask func(context.Context) netlab.Reply) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(requestLimit))
	defer cancel()
	began := time.Now()
	reply := ask(limited)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if began.Before(tr.since) && reply.Outcome != netlab.Answered {
		return
	}
	if reply.Outcome == netlab.Answered {
		tr.answered[name]++
		return
	}
	tr.lost = append(tr.lost, fmt.Sprintf("%s %s: %s (%v)", time.Now().UTC().Format("05.000"), name, reply, reply.Err))
}

// More waits until every kind of traffic was answered n more times.
func (tr *Traffic) More(t *testing.T, n int) {
	t.Helper()
	before := tr.Counts()
	Eventually(t, fmt.Sprintf("%d more of each kind of traffic", n), func() error {
		now := tr.Counts()
		if len(now) < 6 {
			return fmt.Errorf("only %v", now)
		}
		for name, count := range now {
			if count < before[name]+n {
				return fmt.Errorf("%s: %d", name, count-before[name])
			}
		}
		return nil
	})
}

// Counts returns how many of each kind were answered.
func (tr *Traffic) Counts() map[string]int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	out := map[string]int{}
	for name, n := range tr.answered {
		out[name] = n
	}
	return out
}

// Check fails the test if anything was lost since the last Check or Lost. It reports whether nothing was lost.
func (tr *Traffic) Check(t *testing.T, when string) bool {
	t.Helper()
	lost := tr.Lost()
	if len(lost) > 0 {
		t.Errorf("%s: %d lost, the last: %s, the first:\n%s", when, len(lost), lost[len(lost)-1], strings.Join(lost[:min(len(lost), 20)], "\n"))
	}
	return len(lost) == 0
}

// Rules returns the contents of a host's kernel, with the packet counter of each rule, and the TCP connections, for the report of a loss.
func Rules(t *testing.T, h *netlab.Host) string {
	t.Helper()
	return Shell(t, h, "nft list ruleset; for p in iptables ip6tables; do echo \"$p-legacy\"; $p-legacy-save -c; done; conntrack -L -p tcp 2>/dev/null | tail -300")
}

// Lost returns what was lost since the last Check or Lost.
func (tr *Traffic) Lost() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	lost := tr.lost
	tr.lost = nil
	return lost
}

// Forget excludes all requests that have begun so far from the count of losses: they began during another attempt.
func (tr *Traffic) Forget() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.since, tr.lost = time.Now(), nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Eventually retries f until it succeeds, for at most a minute on a usual machine. The retry interval grows.
func Eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	limit, pause := patience.Of(time.Minute), 20*time.Millisecond
	for end := time.Now().Add(limit); ; {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(patience.Pause(pause))
		pause = min(2*pause, 200*time.Millisecond)
	}
}

// Shell runs a shell command inside a host and returns its output.
func Shell(t *testing.T, h *netlab.Host, command string) string {
	t.Helper()
	out, err := h.Run(t.Context(), "sh", "-ec", command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Manifests contain a Service with an endpoint on each node.
const Manifests = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: test}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  ipFamilies: [IPv4]
  ports:
  - {name: t, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30080}
  - {name: u, protocol: UDP, port: 80, targetPort: 8080, nodePort: 30080}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: test, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: t, protocol: TCP, port: 8080}, {name: u, protocol: UDP, port: 8080}]
endpoints:
- {addresses: [10.244.1.11], conditions: {ready: true}, nodeName: node-a}
- {addresses: [10.244.2.11], conditions: {ready: true}, nodeName: node-b}
`
