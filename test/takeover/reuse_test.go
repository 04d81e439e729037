package takeover_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// onlyFirstSYN lets a client send each SYN once. It drops TCP's retransmission after a second, so that a lost SYN shows as a connection that is never
// established, however slow the machine is.
const onlyFirstSYN = `nft -f - <<'END'
table inet once {
  set seen { typeof tcp sport . tcp sequence; size 65536; flags dynamic; }
  chain out {
    type filter hook output priority 0;
    tcp flags & (syn | ack) == syn tcp sport . tcp sequence @seen counter drop
    tcp flags & (syn | ack) == syn add @seen { tcp sport . tcp sequence }
  }
}
END
sysctl -qw net.ipv4.tcp_tw_reuse=1`

// TestPortUsedAgain reproduces kubernetes#81775: a client reuses its source ports while endpoints are replaced, and IPVS still has its last
// connections to the removed endpoints. With the agent's settings the first SYN reaches an existing endpoint, whatever state was left. The settings
// of kube-proxy 1.13 show that the test detects the fault. Those of 1.14 (expire_nodest_conn 1) no longer have it since Linux 5.16.
func TestPortUsedAgain(t *testing.T) {
	needIPVS(t)
	t.Setenv("TMPDIR", t.TempDir())
	lab := newLab(t)
	set := func(reuse, expire int) {
		takeover.Shell(t, lab.Node(), fmt.Sprintf("sysctl -qw net.ipv4.vs.conn_reuse_mode=%d net.ipv4.vs.expire_nodest_conn=%d", reuse, expire))
	}
	set(0, 0)
	r := newReuse(t, lab, binary(t))
	for _, c := range []struct {
		name string
		set  func()
		dead bool
	}{
		{"of the agent", func() {}, false},
		{"of kube-proxy 1.13", func() { set(0, 0) }, true},
		{"of kube-proxy 1.14, on Linux 5.16 and later", func() { set(0, 1) }, false},
		{"mode 2", func() { set(2, 1) }, false},
	} {
		t.Run("settings "+c.name, func(t *testing.T) {
			c.set()
			for _, client := range r.clients() {
				if wrong := r.replace(t, client); (len(wrong) > 0) != c.dead {
					t.Errorf("%s: endpoints that are gone were met: %t, want %t: %s", client, len(wrong) > 0, c.dead, wrong)
				}
			}
		})
	}
}

// reuse is an agent in ipvs mode, with its current endpoint.
type reuse struct {
	lab   *netlab.Lab
	agent *kit.Fairlead
	now   int
	port  uint16 // the last port in use
}

// reuseClient is a client in one family.
type reuseClient struct {
	host *netlab.Host
	to   netip.AddrPort
}

func (c reuseClient) String() string { return fmt.Sprintf("%s to %s", c.host.Name, c.to) }

func newReuse(t *testing.T, lab *netlab.Lab, bin string) *reuse {
	r := &reuse{lab: lab, now: 1, port: 20000}
	warmUp(t, lab.Node(), bin)
	r.agent = start(t, bin, kit.Setup{Lab: lab, Mode: "ipvs", Files: []kit.File{{Name: "web.yaml", Data: twoFamilies(r.now)}}})
	t.Cleanup(func() {
		if err := r.agent.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	for _, c := range r.clients()[:2] {
		takeover.Shell(t, c.host, onlyFirstSYN)
	}
	return r
}

// clients returns one client that is masqueraded and one that is not, in each family.
func (r *reuse) clients() (out []reuseClient) {
	pod, err := r.lab.Host("pod-a3")
	if err != nil {
		panic(err) // the lab always has this host
	}
	for _, to := range []string{"10.96.0.10:80", "[fd00:10:96::10]:80"} {
		for _, h := range []*netlab.Host{r.lab.Client(), pod} {
			out = append(out, reuseClient{h, netip.MustParseAddrPort(to)})
		}
	}
	return out
}

// replace sends requests from several ports of a client, replaces the endpoint, and sends requests from the same ports. It returns what failed.
func (r *reuse) replace(t *testing.T, c reuseClient) (wrong []string) {
	t.Helper()
	const ports = 4
	first := r.port + 1
	r.port += ports
	old := fmt.Sprintf("pod-a%d", r.now)
	for i := range uint16(ports) {
		if who, err := c.ask(t.Context(), first+i); who != old {
			t.Fatalf("%s from port %d: %q, %v, want %s", c, first+i, who, err, old)
		}
	}
	r.now = 3 - r.now
	if err := r.agent.Apply(t.Context(), []kit.File{{Name: "web.yaml", Data: twoFamilies(r.now)}}); err != nil {
		t.Fatal(err)
	}
	for i := range uint16(ports) {
		if who, err := c.ask(t.Context(), first+i); who != fmt.Sprintf("pod-a%d", r.now) {
			wrong = append(wrong, fmt.Sprintf("port %d: %q, %v", first+i, who, err))
		}
	}
	return wrong
}

// ask makes one connection from a source port and returns the name of the endpoint that answered. It waits until the client's own kernel frees the
// port.
func (c reuseClient) ask(ctx context.Context, port uint16) (who string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(5*time.Second))
	defer cancel()
	d := net.Dialer{LocalAddr: &net.TCPAddr{Port: int(port)}, Control: func(_, _ string, raw syscall.RawConn) error {
		var refused error
		err := raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(err, refused)
	}}
	d.SetMultipathTCP(false) // as the lab's servers do
	var conn net.Conn
	for {
		if err = c.host.Do(func() (err error) {
			conn, err = d.DialContext(ctx, "tcp", c.to.String())
			return err
		}); !errors.Is(err, unix.EADDRNOTAVAIL) {
			break
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("port %d stays in use: %w", port, err)
		case <-time.After(50 * time.Millisecond): // the kernel frees a port a second after the last connection, without a notification
		}
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // without it the read ends only with the connection
	}
	if _, err := conn.Write([]byte("who\n")); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	who, _, _ = strings.Cut(line, " ")
	return who, err
}

// twoFamilies returns a Service in each family, with one endpoint.
func twoFamilies(pod int) string {
	const service = `
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: test}
spec:
  clusterIP: "%[2]s"
  clusterIPs: ["%[2]s"]
  ipFamilies: [%[1]s]
  ports: [{protocol: TCP, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[3]s, namespace: test, labels: {kubernetes.io/service-name: %[3]s}}
addressType: %[1]s
ports: [{protocol: TCP, port: 8080}]
endpoints: [{addresses: ["%[4]s"], conditions: {ready: true}, nodeName: node-a}]
---`
	return strings.ReplaceAll(fmt.Sprintf(service, "IPv4", "10.96.0.10", "ipv4", fmt.Sprintf("10.244.1.%d", 10+pod))+
		fmt.Sprintf(service, "IPv6", "fd00:10:96::10", "ipv6", fmt.Sprintf("fd00:10:244:1::%d", 10+pod)), "name: IPv", "name: ipv")
}
