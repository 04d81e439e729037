package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"

	"github.com/fairlead/fairlead/test/headless/kubeapi"
)

// The addresses of the lab. The client is a pod, so its connections are not
// masqueraded.
const (
	podCIDR      = "10.192.0.0/10" // all pods
	clientAddr   = "10.199.1.2"
	nodeAddr     = "10.199.2.1"
	endpoints    = "10.200.0.0/13"
	servicePort  = 80
	endpointPort = 8080
	apiPort      = "7443"
	backlog      = 8192
)

// lab is the namespaces client, node and server, and an API server inside the node's.
type lab struct{ api *http.Server }

func newLab(api *kubeapi.API) (*lab, error) {
	if err := shell(`
for n in client node server; do ip netns add $n; ip -n $n link set lo up; done
ip link add c0 netns client type veth peer name nc netns node
ip link add s0 netns server type veth peer name ns netns node
ip -n client addr add ` + clientAddr + `/24 dev c0; ip -n node addr add 10.199.1.1/24 dev nc
ip -n node addr add ` + nodeAddr + `/24 dev ns; ip -n server addr add 10.199.2.2/24 dev s0
for x in "client c0" "node nc" "node ns" "server s0"; do set -- $x; ip -n $1 link set $2 up; done
ip -n client route add default via 10.199.1.1; ip -n server route add default via ` + nodeAddr + `
ip -n node route add ` + endpoints + ` via 10.199.2.2; ip -n server route add local ` + endpoints + ` dev lo
ip netns exec node sysctl -qw net.ipv4.ip_forward=1
ip netns exec server sysctl -qw net.core.somaxconn=` + fmt.Sprint(backlog) + ` net.ipv4.tcp_max_syn_backlog=` + fmt.Sprint(backlog) + `
ip netns exec client sysctl -qw net.ipv4.ip_local_port_range="1024 65535"`); err != nil {
		return nil, err
	}
	l := &lab{api: &http.Server{Handler: api}}
	var lis net.Listener
	err := inside("node", func() (err error) {
		lis, err = net.Listen("tcp", "127.0.0.1:"+apiPort)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	go func() { _ = l.api.Serve(lis) }() // ends with close
	return l, nil
}

func (l *lab) close() error {
	return errors.Join(l.api.Close(), shell("for n in client node server; do ip netns del $n || true; done"))
}

func shell(script string) error {
	out, err := exec.Command("bash", "-ec", script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.TrimSpace(script), err, out)
	}
	return nil
}

// inside runs f on a thread that is in a namespace, and ends the thread.
func inside(name string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		h, err := netns.GetFromName(name)
		if err == nil {
			err = netns.Set(h)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// command returns a command that runs inside a namespace.
func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("ip", append([]string{"netns", "exec", name}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}
