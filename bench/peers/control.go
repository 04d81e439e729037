package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/test/cluster/testcluster"
	"github.com/fairlead/fairlead/test/netlab"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// control is the control plane and the state that the whole run shares.
type control struct {
	options
	dir        string
	lab        *netlab.Lab
	host       *netlab.Host
	group      *cgroup
	cluster    *testcluster.Cluster
	api        kubernetes.Interface
	kubeconfig string
}

func newControl(ctx context.Context, o options) (*control, error) {
	sweep()
	c := &control{options: o}
	if err := c.build(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *control) build(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", fmt.Sprintf("flpeers-%d-scratch-", os.Getpid())); err != nil {
		return err
	}
	if c.lab, err = netlab.New(ctx, netlab.Config{PodsPerNode: 1}); err != nil {
		return err
	}
	if c.host, err = c.lab.Host("client2"); err != nil {
		return err
	}
	// The address of the API server outlives the links to the nodes of the subjects.
	if err := ip(ctx, c.host, "addr", "add", apiAddr.String()+"/32", "dev", "lo"); err != nil {
		return err
	}
	if c.group, err = newCgroup("control"); err != nil {
		return err
	}
	return c.start(ctx)
}

func (c *control) start(ctx context.Context) (err error) {
	c.cluster, err = testcluster.Start(ctx, testcluster.Config{Host: c.host, Addr: apiAddr, Dir: c.dir, Bin: c.bin,
		ServiceCIDRs: serviceCIDR, Wrap: c.group.wrap(),
		ExtraArgs: []string{"--service-node-port-range=" + nodePorts, "--max-requests-inflight=3000", "--max-mutating-requests-inflight=1000"}})
	if err != nil {
		return err
	}
	cfg := rest.CopyConfig(c.cluster.AdminREST)
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	if c.api, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	c.kubeconfig = filepath.Join(c.dir, "kubeconfig")
	return c.cluster.WriteKubeconfig(c.kubeconfig, testcluster.Access{})
}

func (c *control) close() {
	if c.cluster != nil {
		c.cluster.Stop()
	}
	if c.group != nil {
		c.group.remove()
	}
	if c.lab != nil {
		if err := c.lab.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "peers: close the lab:", err)
		}
	}
	if c.dir != "" {
		if err := os.RemoveAll(c.dir); err != nil {
			fmt.Fprintln(os.Stderr, "peers: remove the scratch folder:", err)
		}
	}
}

// ip runs ip(8) in the host.
func ip(ctx context.Context, h *netlab.Host, args ...string) error {
	_, err := h.Run(ctx, "ip", args...)
	return err
}

// steps runs fallible steps up to the first failure.
func steps(all ...func() error) error {
	for _, f := range all {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

var errNoSync = errors.New("no sync within the limit")
