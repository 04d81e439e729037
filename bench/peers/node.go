package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/test/netlab"
)

// node is a lab for one subject: a node that nobody has programmed yet, a client, and a host that answers for all pods.
type node struct {
	lab                  *netlab.Lab
	host, client, server *netlab.Host
	stopServer           func()
}

func newNode(ctx context.Context, c *control) (n *node, err error) {
	n = &node{}
	if n.lab, err = netlab.New(ctx, netlab.Config{PodsPerNode: 1}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	n.host, n.client = n.lab.Node(), n.lab.Client()
	if n.server, err = n.lab.Host("node-b"); err != nil {
		return nil, err
	}
	server, gateway := n.server.Addrs.V4.String(), n.host.Addrs.V4.String()
	err = steps(
		func() error { return n.joinControl(ctx, c) },
		func() error { return ip(ctx, n.server, "route", "add", "local", podCIDR, "dev", "lo") },
		func() error { return ip(ctx, n.host, "route", "add", podCIDR, "via", server) },
		// Answers go back the way the requests came, as they would from a real pod's node.
		func() error {
			return ip(ctx, n.server, "route", "add", n.client.Addrs.V4.String()+"/32", "via", gateway)
		},
		func() error { return n.client.Sysctl("net/ipv4/ip_local_port_range", "10000 29999") },
		func() error { return n.server.Sysctl("net/core/somaxconn", "4096") },
		func() (err error) { n.stopServer, err = serve(n.server); return err },
	)
	if err != nil {
		return nil, err
	}
	// Thousands of connects a second would fill the connection table with closed ones.
	if err := n.host.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_close", "2"); err != nil {
		fmt.Fprintln(os.Stderr, "peers: note: closed connections stay in the table for 10 s:", err)
	}
	return n, nil
}

// joinControl links the node to the control plane; the link goes with the node.
func (n *node) joinControl(ctx context.Context, c *control) error {
	return steps(
		func() error {
			return ip(ctx, c.host, "link", "add", "peer0", "type", "veth", "peer", "name", "control", "netns", n.host.NetNS)
		},
		func() error { return ip(ctx, c.host, "addr", "add", "192.168.51.1/30", "dev", "peer0") },
		func() error { return ip(ctx, c.host, "link", "set", "peer0", "up") },
		func() error { return ip(ctx, n.host, "addr", "add", "192.168.51.2/30", "dev", "control") },
		func() error { return ip(ctx, n.host, "link", "set", "control", "up") },
		func() error { return ip(ctx, n.host, "route", "add", apiAddr.String()+"/32", "via", "192.168.51.1") },
	)
}

func (n *node) close() {
	if n.stopServer != nil {
		n.stopServer()
	}
	if err := n.lab.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "peers: close the node's lab:", err)
	}
}
