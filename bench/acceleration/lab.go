package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vip is the address of the Service. ports returns its ports by server.
const vip = "10.96.0.10"

func ports() map[string]int {
	return map[string]int{"echo": 8080, "sink": 8081, "source": 8082, "udpecho": 8053, "udpsink": 8054}
}

// lab is the client, the node and the server: namespaces in the guest, which has no network to the outside.
type lab struct {
	self  string
	dir   string
	agent *exec.Cmd
	ended chan struct{} // closed when agent has ended
	log   bytes.Buffer
	procs []*exec.Cmd
}

func in(namespace string, words ...string) []string {
	return append([]string{"ip", "netns", "exec", namespace}, words...)
}

func sh(words ...string) (string, error) {
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

func newLab() (*lab, error) {
	dir, err := os.MkdirTemp("", "acceleration")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir}
	if l.self, err = os.Executable(); err != nil {
		return nil, err
	}
	for _, line := range []string{
		"ip netns add client", "ip netns add node", "ip netns add server",
		"ip link add c0 netns client type veth peer name nc netns node", "ip link add s0 netns server type veth peer name ns netns node",
		"ip -n client addr add 10.0.1.2/24 dev c0", "ip -n node addr add 10.0.1.1/24 dev nc",
		"ip -n node addr add 10.0.2.1/24 dev ns", "ip -n server addr add 10.0.2.2/24 dev s0",
		"ip -n client link set c0 up", "ip -n node link set nc up", "ip -n node link set ns up", "ip -n server link set s0 up",
		"ip -n client link set lo up", "ip -n node link set lo up", "ip -n server link set lo up",
		"ip -n client route add default via 10.0.1.1", "ip -n server route add default via 10.0.2.1",
		"ip netns exec node sysctl -qw net.ipv4.ip_forward=1",
		"ip netns exec client sysctl -qw net.ipv4.tcp_tw_reuse=1", "ip netns exec client sysctl -qw net.ipv4.tcp_max_tw_buckets=200",
		"ip netns exec client sysctl -qw net.ipv4.tcp_no_metrics_save=1", "ip netns exec server sysctl -qw net.ipv4.tcp_no_metrics_save=1",
	} {
		if _, err := sh(strings.Fields(line)...); err != nil {
			return nil, err
		}
	}
	for name, port := range ports() {
		if err := l.start(in("server", l.self, "-serve", name, "-at", "10.0.2.2:"+strconv.Itoa(port)), os.Stderr); err != nil {
			return nil, err
		}
	}
	return l, l.manifests()
}

// start starts a program that ends with the lab.
func (l *lab) start(words []string, out *os.File) error {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stderr = out
	cmd.Env = append(os.Environ(), quiet)
	l.procs = append(l.procs, cmd)
	return cmd.Start()
}

// quiet keeps the runtime from interrupting a thread that waits in a system call.
const quiet = "GODEBUG=asyncpreemptoff=1"

func (l *lab) close() {
	l.stopAgent()
	for _, p := range l.procs {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
}

// manifests writes a Service with all ports and its one endpoint.
func (l *lab) manifests() error {
	var svc, slice strings.Builder
	for _, name := range []string{"echo", "sink", "source", "udpecho", "udpsink"} {
		protocol := "TCP"
		if strings.HasPrefix(name, "udp") {
			protocol = "UDP"
		}
		fmt.Fprintf(&svc, "  - {name: %s, port: %d, protocol: %s}\n", name, ports()[name], protocol)
		fmt.Fprintf(&slice, "- {name: %s, port: %d, protocol: %s}\n", name, ports()[name], protocol)
	}
	text := "apiVersion: v1\nkind: Service\nmetadata: {name: bench, namespace: default}\nspec:\n  clusterIP: " + vip +
		"\n  clusterIPs: [" + vip + "]\n  ipFamilies: [IPv4]\n  ports:\n" + svc.String() +
		"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: bench-4, namespace: default, labels: {kubernetes.io/service-name: bench}}\n" +
		"addressType: IPv4\nports:\n" + slice.String() + "endpoints: [{addresses: [10.0.2.2], conditions: {ready: true}}]\n"
	dir := filepath.Join(l.dir, "manifests")
	return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "bench.yaml"), []byte(text), 0o644))
}

// startAgent runs the agent on the node until its first sync is complete. The guest's clock jumps while the guest waits for the
// host's files, such as kernel modules. The agent then exceeds its own limits, and startAgent retries.
func (l *lab) startAgent(fairlead, mode string, more ...string) (err error) {
	for range 20 {
		if err = l.tryAgent(fairlead, mode, more...); err == nil {
			return nil
		}
	}
	return err
}

func (l *lab) tryAgent(fairlead, mode string, more ...string) error {
	l.stopAgent()
	l.log.Reset()
	words := in("node", fairlead, "run", "--proxy-mode", mode, "--manifests", filepath.Join(l.dir, "manifests"), "--hostname-override", "node",
		"--bind-address", "10.0.2.1", "--cluster-cidr", "10.0.0.0/16", "--healthz-bind-address", "127.0.0.1:10256", "--metrics-bind-address", "127.0.0.1:10249")
	words = append(words, more...)
	l.agent = exec.Command(words[0], words[1:]...)
	l.agent.Stdout, l.agent.Stderr = &l.log, &l.log
	l.agent.Env = os.Environ()
	if err := l.agent.Start(); err != nil {
		l.agent = nil
		return err
	}
	ended := make(chan struct{})
	l.ended = ended
	go func(cmd *exec.Cmd) { _ = cmd.Wait(); close(ended) }(l.agent)
	for range 10_000 {
		select {
		case <-ended:
			l.agent = nil
			return fmt.Errorf("the agent ended:\n%s", l.log.String())
		default:
		}
		if inNamespace("node", ready) == nil {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("the agent does not become ready:\n%s", l.log.String())
}

// ready returns an error unless the agent in the namespace of the calling thread is ready.
func ready() error {
	c, err := net.DialTimeout("tcp", "127.0.0.1:10256", time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("GET /readyz HTTP/1.0\r\n\r\n")); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	answer, err := io.ReadAll(c)
	if err == nil && !bytes.Contains(answer, []byte(" 200 ")) {
		err = fmt.Errorf("not ready: %s", answer)
	}
	return err
}

func (l *lab) stopAgent() {
	if l.agent == nil {
		return
	}
	l.pauseAgent(false)
	_ = l.agent.Process.Signal(syscall.SIGTERM)
	<-l.ended
	l.agent = nil
}

// pauseAgent stops the agent's own work, so that only packets are measured; the state that it has written stays.
func (l *lab) pauseAgent(stop bool) {
	if l.agent == nil {
		return
	}
	s := syscall.SIGCONT
	if stop {
		s = syscall.SIGSTOP
	}
	_ = l.agent.Process.Signal(s)
}

// segments switches the offloads of the devices: without them packets are as long as the MTU along the whole path.
func segments(on bool) error {
	for device, namespace := range map[string]string{"c0": "client", "nc": "node", "ns": "node", "s0": "server"} {
		if err := inNamespace(namespace, func() error { return setSegments(device, on) }); err != nil {
			return fmt.Errorf("segmentation of %s: %w", device, err)
		}
	}
	return nil
}

// inNamespace runs do on a thread that enters the namespace and ends.
func inNamespace(name string, do func() error) error {
	f, err := os.Open("/run/netns/" + name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return onThread(func() error {
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
}

func setSegments(device string, on bool) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	// ETHTOOL_STSO, _SGSO, _SGRO of linux/ethtool.h, switched off in this order, on in the reverse order.
	commands := []uint32{0x1f, 0x24, 0x2c}
	value := [2]uint32{}
	if on {
		value[1] = 1
		slices.Reverse(commands)
	}
	for _, value[0] = range commands {
		var request struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}
		copy(request.name[:], device)
		request.data = unsafe.Pointer(&value)
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); e != 0 {
			return e
		}
	}
	return nil
}
