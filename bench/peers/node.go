package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// node is a lab for one subject: a node without any rules yet, a client, and a host that answers for all pods.
type node struct {
	lab                           *netlab.Lab
	control, host, client, server *netlab.Host
	stopServer                    func()
}

func newNode(ctx context.Context, c *control) (*node, error) {
	lab, err := netlab.New(ctx, netlab.Config{PodsPerNode: 1})
	if err != nil {
		return nil, err
	}
	n := &node{lab: lab, control: c.host, host: lab.Node(), client: lab.Client()}
	if err := n.wire(ctx); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *node) wire(ctx context.Context) (err error) {
	if n.server, err = n.lab.Host("node-b"); err != nil {
		return err
	}
	server, gateway := n.server.Addrs.V4.String(), n.host.Addrs.V4.String()
	err = steps(
		func() error { return n.joinControl(ctx) },
		func() error { return ip(ctx, n.server, "route", "add", "local", podCIDR, "dev", "lo") },
		func() error { return ip(ctx, n.host, "route", "add", podCIDR, "via", server) },
		// Answers return along the path of the requests, as they would from a real pod's node.
		func() error {
			return ip(ctx, n.server, "route", "add", n.client.Addrs.V4.String()+"/32", "via", gateway)
		},
		func() error { return n.client.Sysctl("net/ipv4/ip_local_port_range", "10000 29999") },
		func() error { return n.server.Sysctl("net/core/somaxconn", "4096") },
		func() (err error) { n.stopServer, err = serve(n.server); return err },
	)
	if err != nil {
		return err
	}
	// Thousands of connects a second would otherwise fill the connection table with closed connections.
	if err := n.host.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_close", "2"); err != nil {
		fmt.Fprintln(os.Stderr, "peers: note: closed connections stay in the table for 10 s:", err)
	}
	return nil
}

// joinControl links the node to the control plane.
func (n *node) joinControl(ctx context.Context) error {
	return steps(
		func() error {
			return ip(ctx, n.control, "link", "add", "peer0", "type", "veth", "peer", "name", "control", "netns", n.host.NetNS)
		},
		func() error { return ip(ctx, n.control, "addr", "add", "192.168.51.1/30", "dev", "peer0") },
		func() error { return ip(ctx, n.control, "link", "set", "peer0", "up") },
		func() error { return ip(ctx, n.host, "addr", "add", "192.168.51.2/30", "dev", "control") },
		func() error { return ip(ctx, n.host, "link", "set", "control", "up") },
		func() error { return ip(ctx, n.host, "route", "add", apiAddr.String()+"/32", "via", "192.168.51.1") },
	)
}

func (n *node) close() {
	if n.stopServer != nil {
		n.stopServer()
	}
	// The kernel would remove it with the namespace, but only some time later, which is too late for the next node.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := ip(ctx, n.control, "link", "del", "peer0"); err != nil {
		fmt.Fprintln(os.Stderr, "peers: remove the link to the node:", err)
	}
	if err := n.lab.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "peers: close the node's lab:", err)
	}
}
