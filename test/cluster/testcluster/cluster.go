package testcluster

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Config configures where and how the cluster runs.
type Config struct {
	Host         *netlab.Host
	Addr         netip.Addr // of the host; the node reaches the API server on it
	Dir          string     // scratch folder, created by the caller
	Bin          string     // folder with etcd and kube-apiserver
	ServiceCIDRs string
	Wrap         []string // put before each command line, to place it in a cgroup
	ExtraArgs    []string // of kube-apiserver
	Deploy       string   // file of manifests that define the agent's account; "" for an account with kube-proxy's rights
}

// Cluster is a running control plane.
type Cluster struct {
	Admin     kubernetes.Interface // as system:masters, without client-side throttling
	AdminREST *rest.Config

	cfg        Config
	pki        *pki
	accountKey *ecdsa.PrivateKey
	accountUID string
	etcd, api  *program
}

const (
	apiPort  = 6443
	etcdURL  = "http://127.0.0.1:2379"
	deadline = 3 * time.Minute // 3 s on an idle machine; 23 s were measured on one with a load of 40
)

// Start runs etcd and kube-apiserver and returns when the server is ready and the agent's account exists.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg}
	for _, b := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(cfg.Bin, b)); err != nil {
			return nil, fmt.Errorf("find %s: %w (test/cluster/build.sh makes it)", b, err)
		}
	}
	if err := c.issueAll(); err != nil {
		return nil, err
	}
	err := c.start(ctx)
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if c.etcd, err = c.run("etcd", "--data-dir="+filepath.Join(c.cfg.Dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL, "--quota-backend-bytes=8589934592", "--log-level=warn"); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	return c.createAccount(ctx)
}

func (c *Cluster) issueAll() (err error) {
	if c.pki, err = newPKI(c.cfg.Dir); err != nil {
		return err
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	service := netip.MustParsePrefix(firstOf(c.cfg.ServiceCIDRs)).Addr().Next() // the kubernetes Service
	err = errors.Join(
		c.pki.issue("apiserver", subject{user: "kube-apiserver", addrs: []netip.Addr{loopback, c.cfg.Addr, service}}),
		c.pki.issue("admin", subject{user: "admin", group: "system:masters"}),
		c.pki.issue("agent", subject{user: "system:kube-proxy"})) // bound to system:node-proxier in every cluster
	if err != nil {
		return err
	}
	if c.accountKey, err = c.pki.newKey("sa"); err != nil {
		return err
	}
	c.AdminREST = &rest.Config{Host: c.URL(), QPS: -1, Timeout: 30 * time.Second, Dial: c.cfg.Host.Dial,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.pki.path("ca.crt"), CertFile: c.pki.path("admin.crt"), KeyFile: c.pki.path("admin.key")}}
	c.Admin, err = kubernetes.NewForConfig(c.AdminREST)
	return err
}

// StartAPIServer starts the server, also after KillAPIServer, on the existing data. It returns when the server is
// ready.
func (c *Cluster) StartAPIServer(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	p := c.pki.path
	args := append([]string{"--etcd-servers=" + etcdURL, "--service-cluster-ip-range=" + c.cfg.ServiceCIDRs,
		"--bind-address=0.0.0.0", "--advertise-address=" + c.cfg.Addr.String(), fmt.Sprintf("--secure-port=%d", apiPort),
		"--cert-dir=" + c.cfg.Dir, "--tls-cert-file=" + p("apiserver.crt"), "--tls-private-key-file=" + p("apiserver.key"),
		"--client-ca-file=" + p("ca.crt"), "--service-account-key-file=" + p("sa.key"), "--service-account-signing-key-file=" + p("sa.key"),
		"--service-account-issuer=" + issuer, "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--allow-privileged=true",
	}, c.cfg.ExtraArgs...)
	if c.api, err = c.run("kube-apiserver", args...); err != nil {
		return err
	}
	err = poll(ctx, func() error {
		if c.api.ended() {
			return &fatal{fmt.Errorf("kube-apiserver ended: %v\n%s", c.api.Err(), c.api.logTail(15))}
		}
		return c.Admin.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(2 * time.Second).Do(ctx).Error()
	})
	if err != nil {
		return fmt.Errorf("wait for kube-apiserver to be ready: %w", err)
	}
	return nil
}

// KillAPIServer ends the server with SIGKILL: its watchers are not notified.
func (c *Cluster) KillAPIServer() { c.api.Kill() }

// Stop ends both processes. The caller that created the scratch folder and the namespace removes them.
func (c *Cluster) Stop() {
	for _, p := range []*program{c.api, c.etcd} { // the server first: without etcd it would wait for a long time
		if p != nil {
			p.Kill()
		}
	}
}

// URL returns the address on which the API server listens.
func (c *Cluster) URL() string { return c.urlAt(apiPort) }

func (c *Cluster) urlAt(port int) string {
	return fmt.Sprintf("https://%s", netip.AddrPortFrom(c.cfg.Addr, uint16(port)))
}
