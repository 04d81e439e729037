package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/test/cluster/testcluster"
	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

const subjectName = "kube-proxy"

// Limits for kube-proxy on a busy machine: to be in sync after its start, to end after SIGTERM, to apply one change to the kernel.
const (
	startLimit  = 40 * time.Second
	endLimit    = 10 * time.Second
	settleLimit = 60 * time.Second // iptables mode with 5 000 endpoints
)

// kubeProxy is upstream kube-proxy on node-a, with an API server on client2 of the same lab.
type kubeProxy struct {
	bin string // folder of the programs

	lab     *netlab.Lab
	dir     string
	cluster *testcluster.Cluster

	setup   kit.Setup
	objects *objects
	barrier barrier
	proc    *netlab.Process
	halted  bool
}

var (
	_ kit.Subject = (*kubeProxy)(nil)
	_ kit.Settler = (*kubeProxy)(nil)
)

// Name implements kit.Subject.
func (k *kubeProxy) Name() string { return subjectName }

// Settle implements kit.Settler: it starts the API server.
func (k *kubeProxy) Settle(ctx context.Context, lab *netlab.Lab) (err error) {
	k.lab = lab
	if k.dir, err = os.MkdirTemp("", "fairlead-conformance-"); err != nil {
		return err
	}
	control, err := lab.Host("client2")
	if err != nil {
		return err
	}
	k.cluster, err = testcluster.Start(ctx, testcluster.Config{Host: control, Addr: control.Addrs.V4, Dir: k.dir, Bin: k.bin,
		ServiceCIDRs: netlab.ServiceCIDR4 + "," + netlab.ServiceCIDR6})
	if err != nil {
		os.RemoveAll(k.dir)
		return err
	}
	return k.cluster.WriteKubeconfig(k.path("kubeconfig"), testcluster.Access{})
}

// Leave implements kit.Settler.
func (k *kubeProxy) Leave() {
	k.cluster.Stop()
	os.RemoveAll(k.dir)
}

func (k *kubeProxy) path(name string) string { return filepath.Join(k.dir, name) }

// Start implements kit.Subject.
func (k *kubeProxy) Start(ctx context.Context, s kit.Setup) error {
	k.setup, k.barrier, k.proc, k.halted = s, barrier{}, nil, true
	k.objects = newObjects(k.cluster.Admin)
	if err := os.RemoveAll(k.path("log")); err != nil {
		return err
	}
	if err := k.Apply(ctx, s.Files); err != nil {
		return err
	}
	return k.Resume(ctx)
}

// launch starts the process and waits until it has synced once and serves the barrier.
func (k *kubeProxy) launch(ctx context.Context) error {
	log, err := os.OpenFile(k.path("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	// A change is applied to the kernel at once, because the kit waits for thousands of changes. nftables mode accepts the two flags
	// too.
	args := append([]string{"--kubeconfig", k.path("kubeconfig"), "--proxy-mode", k.setup.Mode, "--hostname-override", "node-a",
		"--cluster-cidr", netlab.ClusterCIDR4 + "," + netlab.ClusterCIDR6, "--iptables-min-sync-period", "0s",
		"--conntrack-max-per-core=0", "--conntrack-min=0"}, k.setup.Flags...)
	cmd := exec.Command(filepath.Join(k.bin, "kube-proxy"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if k.proc, err = k.lab.Node().Start(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := k.synced(ctx)
		if err == nil {
			return k.barrier.wait(ctx, k.lab)
		}
		select {
		case <-k.proc.Done():
			return fmt.Errorf("kube-proxy ended by itself: %v", k.proc.Err())
		case <-ctx.Done():
			return fmt.Errorf("not in sync within %s: %w", startLimit, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (k *kubeProxy) synced(ctx context.Context) error {
	status, _, body, err := kit.Get(ctx, k.lab.Node(), "http://127.0.0.1:10256/livez")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("livez answers %d: %.200s", status, body)
	}
	at, err := kit.Metric(ctx, k.lab.Node(), "kubeproxy_sync_proxy_rules_last_timestamp_seconds")
	if err == nil && at == 0 {
		err = errors.New("no sync yet")
	}
	return err
}

// Restart implements kit.Subject.
func (k *kubeProxy) Restart(ctx context.Context, kill bool) error {
	if kill {
		k.proc.Kill()
	} else if err := k.Halt(ctx); err != nil {
		return err
	}
	return k.Resume(ctx)
}

// Halt implements kit.Subject.
func (k *kubeProxy) Halt(context.Context) error {
	k.halted = true
	if !k.proc.Terminate(endLimit) {
		return fmt.Errorf("kube-proxy did not end within %s of SIGTERM", endLimit)
	}
	return nil
}

// Resume implements kit.Subject.
func (k *kubeProxy) Resume(ctx context.Context) error {
	k.halted = false
	return k.launch(ctx)
}

// Apply implements kit.Subject.
func (k *kubeProxy) Apply(ctx context.Context, files []kit.File) error {
	for _, f := range files {
		if err := k.objects.apply(ctx, f); err != nil {
			return err
		}
	}
	return k.settle(ctx)
}

// Delete implements kit.Subject.
func (k *kubeProxy) Delete(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := k.objects.remove(ctx, name); err != nil {
			return err
		}
	}
	return k.settle(ctx)
}

// settle passes the barrier: everything written before it is in the kernel.
func (k *kubeProxy) settle(ctx context.Context) error {
	objs, err := k.barrier.next()
	if err != nil {
		return err
	}
	if err := k.objects.put(ctx, objs); err != nil {
		return fmt.Errorf("write the barrier: %w", err)
	}
	if k.halted {
		return nil // the subject will read it when it starts
	}
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	err = k.barrier.wait(ctx, k.lab)
	select {
	case <-k.proc.Done():
		return fmt.Errorf("kube-proxy ended by itself: %v", k.proc.Err())
	default:
		return err
	}
}

// Cleanup implements kit.Subject.
func (k *kubeProxy) Cleanup(ctx context.Context) error {
	_, err := k.lab.Node().Run(ctx, filepath.Join(k.bin, "kube-proxy"), "--cleanup")
	return err
}

// Stop implements kit.Subject. It cleans the node whatever --cleanup leaves, because the cleanup is not under test here.
func (k *kubeProxy) Stop(ctx context.Context) error {
	if k.proc != nil {
		k.proc.Kill()
	}
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return errors.Join(k.objects.clear(ctx), kit.SweepNode(ctx, k.lab))
}

// Log implements kit.Subject.
func (k *kubeProxy) Log() string {
	b, err := os.ReadFile(k.path("log"))
	if err != nil {
		return err.Error()
	}
	return string(bytes.ToValidUTF8(b, []byte("?")))
}
