package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/cluster/testcluster"
	"github.com/fairlead/fairlead/test/netlab"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// suite is the state that all tests share: one lab and one control plane.
type suite struct {
	lab     *netlab.Lab
	cluster *testcluster.Cluster
	subject subject
	dir     string
}

const nodeName = "node0"

// seen bounds the wait for one change to reach the packets. kube-proxy needs up to 2 s; the rest is for a busy machine.
const seen = time.Minute

func TestEndToEnd(t *testing.T) {
	s := newSuite(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"ServiceLifecycle", testServiceLifecycle},
		{"NodePort", testNodePort},
		{"BadObjectsStopNobody", testBadObjectsStopNobody},
		{"KillAgent", testKillAgent},
		{"KillAgentInBurst", testKillAgentInBurst},
		{"TerminateAgent", testTerminateAgent},
		{"RestartWritesNothing", testRestartWritesNothing},
		{"KillAPIServer", testKillAPIServer},
		{"KillBoth", testKillBoth},
		{"WatchGone", testWatchGone},
		{"TokenExpires", testTokenExpires},
		{"SlicesForbidden", testSlicesForbidden},
		{"Deployed", testDeployed},
		{"DeployedWrong", testDeployedWrong},
		{"StartupTaint", testStartupTaint},
		{"EmptyServiceIsTold", testEmptyServiceIsTold},
		{"MetricsBesideKubeProxy", testMetricsBesideKubeProxy},
	} {
		t.Run(c.name, func(t *testing.T) {
			if why := onlyInTestAll[c.name]; why != "" && testing.Short() {
				t.Skip("only in make test-all: " + why)
			}
			c.run(t, s.newEnv(t))
		})
	}
}

// onlyInTestAll holds, for each test that is skipped with -short, the reason.
var onlyInTestAll = map[string]string{
	"SlicesForbidden":        "waits for the back-off of a watch, 90 s",
	"EmptyServiceIsTold":     "waits until a Service has had no endpoints for a minute",
	"MetricsBesideKubeProxy": "needs kube-proxy",
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("these tests need root: they make network namespaces and run the agent in one")
	}
	s := &suite{dir: t.TempDir(), subject: newSubject(t)}
	var err error
	if s.lab, err = netlab.New(t.Context(), netlab.Config{}); err != nil {
		t.Fatalf("build the lab (needs network namespaces and veth): %v", err)
	}
	t.Cleanup(func() {
		if err := s.lab.Close(); err != nil {
			t.Errorf("close the lab: %v", err)
		}
	})
	control, err := s.lab.Host("client2")
	must(t, err)
	// The kernel sends one ICMP error a second to each client. Refusals would get lost, and that limit is not under test.
	must(t, s.lab.Node().Sysctl("net/ipv4/icmp_ratelimit", "0"))
	must(t, s.lab.Node().Sysctl("net/ipv6/icmp/ratelimit", "0"))
	// conntrack drops a UDP flow that is idle for 30 s, and on a busy machine a test that keeps a flow takes longer.
	must(t, s.lab.Node().Sysctl("net/netfilter/nf_conntrack_udp_timeout", "600"))
	must(t, s.lab.Node().Sysctl("net/netfilter/nf_conntrack_udp_timeout_stream", "600"))
	start := time.Now()
	s.cluster, err = testcluster.Start(t.Context(), testcluster.Config{Host: control, Addr: control.Addrs.V4, Dir: s.dir, Bin: cacheBin(t),
		ServiceCIDRs: netlab.ServiceCIDR4 + "," + netlab.ServiceCIDR6, Deploy: deployFile})
	must(t, err)
	t.Cleanup(s.cluster.Stop)
	t.Logf("control plane ready in %s; subject: %s", time.Since(start).Round(10*time.Millisecond), s.subject.name)
	s.createNode(t)
	return s
}

func (s *suite) createNode(t *testing.T) {
	t.Helper()
	addrs := s.lab.Node().Addrs
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelHostname: nodeName}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: addrs.V4.String()}, {Type: corev1.NodeInternalIP, Address: addrs.V6.String()}}}}
	_, err := s.cluster.Admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	must(t, err)
}

// cacheBin returns the folder where build.sh puts etcd, kube-apiserver and kube-proxy.
func cacheBin(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("FAIRLEAD_CACHE")
	if dir == "" {
		dir = filepath.Join("..", "..", ".cache")
	}
	abs, err := filepath.Abs(filepath.Join(dir, "bin"))
	must(t, err)
	return abs
}

// cleanNode removes what the last subject left in the node. It fails the test if nft cannot print that state first.
func (s *suite) cleanNode(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	node := s.lab.Node()
	if out, err := node.Run(ctx, "nft", "list", "ruleset"); err != nil || strings.Contains(out, "Error:") {
		t.Errorf("nft cannot print the ruleset: %v\n%s", err, out)
	}
	if _, err := node.Run(ctx, "nft", "flush", "ruleset"); err != nil {
		t.Errorf("flush the node: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
