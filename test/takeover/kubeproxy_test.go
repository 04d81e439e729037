package takeover_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/test/headless/kubeapi"
	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// kubeProxy is upstream's program. It reads the Service of these tests from an API in the node's namespace.
type kubeProxy struct {
	bin, config string
	node        *netlab.Host
	proc        *netlab.Process
}

// kubeProxyProgram returns the path where test/cluster/build.sh puts the program.
func kubeProxyProgram() string {
	return filepath.Join(cmp.Or(os.Getenv("FAIRLEAD_CACHE"), "../../.cache"), "bin", "kube-proxy")
}

// newKubeProxy starts the API server.
func newKubeProxy(t *testing.T, lab *netlab.Lab) *kubeProxy {
	t.Helper()
	k := &kubeProxy{bin: kubeProxyProgram(), node: lab.Node(), config: filepath.Join(t.TempDir(), "kubeconfig")}
	if _, err := os.Stat(k.bin); err != nil {
		t.Fatalf("no kube-proxy (bash test/cluster/build.sh kube-proxy): %v", err)
	}
	api := kubeapi.New()
	api.Put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.node.Addrs.V4.String()}}}})
	service, slice := new(corev1.Service), new(discoveryv1.EndpointSlice)
	texts := strings.Split(serving(1), "\n---\n")
	if err := errors.Join(yaml.Unmarshal([]byte(texts[0]), service), yaml.Unmarshal([]byte(texts[1]), slice)); err != nil {
		t.Fatal(err)
	}
	service.Spec.SessionAffinity = corev1.ServiceAffinityNone // an API server sets this default
	api.Put("services", service)
	api.Put("endpointslices", slice)
	lis, err := k.node.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:7443"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: api}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(lis) }() // ends with Close
	t.Cleanup(func() { _ = server.Close(); <-done })
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: 'http://127.0.0.1:7443'}}]\n" +
		"users: [{name: x}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"
	if err := os.WriteFile(k.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

// start runs kube-proxy in a mode and returns when it has written its rules.
func (k *kubeProxy) start(t *testing.T, mode string) {
	t.Helper()
	mode, backend, some := strings.Cut(mode, "-")
	if !some {
		backend = "nft" // the iptables backend of its ipvs mode
	}
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			path, err := exec.LookPath(family + "-" + backend + verb)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path, filepath.Join(dir, family+verb)); err != nil {
				t.Fatal(err)
			}
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("kube-proxy:\n%s", text)
		}
		_ = log.Close()
	})
	cmd := exec.Command(k.bin, "--kubeconfig", k.config, "--proxy-mode", mode, "--hostname-override", "node-a", "--conntrack-max-per-core=0", "--conntrack-min=0",
		"--cluster-cidr", netlab.ClusterCIDR4+","+netlab.ClusterCIDR6)
	if mode == "ipvs" { // draining servers must not make the test wait for minutes
		cmd.Args = append(cmd.Args, "--ipvs-udp-timeout=20s", "--ipvs-tcpfin-timeout=5s")
	}
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // see stop
	if k.proc, err = k.node.Start(cmd); err != nil {
		t.Fatal(err)
	}
	takeover.Eventually(t, "kube-proxy in "+mode+" mode is in sync", func() error {
		select {
		case <-k.proc.Done():
			return errors.New("it has ended")
		default:
		}
		at, err := kit.Metric(t.Context(), k.node, "kubeproxy_sync_proxy_rules_last_timestamp_seconds")
		if err == nil && at == 0 {
			err = errors.New("no sync yet")
		}
		return err
	})
}

// stop kills kube-proxy with all its child processes, as the end of its container does; its rules stay.
func (k *kubeProxy) stop() {
	k.proc.Terminate(patience.Of(30 * time.Second))
	_ = syscall.Kill(-k.proc.Pid(), syscall.SIGKILL) // an iptables-restore of its own would continue; there may be none
}

// TestTakeoverIPVS takes a node over from upstream's kube-proxy, from ipvs mode to each mode of the agent and from each other mode to the agent's
// ipvs mode, while clients send requests: no request is lost, streams continue, no rule of the old proxy is left. (test/cluster has the pairs without
// ipvs.) In an emulated machine that takes ten minutes or more, so the test runs only on request: FAIRLEAD_VM_FULL=1 RUN=TestTakeoverIPVS make
// test-vm.
func TestTakeoverIPVS(t *testing.T) {
	if os.Getenv("FAIRLEAD_VM_FULL") == "" {
		t.Skip("takes minutes in an emulated machine: FAIRLEAD_VM_FULL=1 RUN=TestTakeoverIPVS make test-vm") // it would take a third of make test
	}
	needIPVS(t)
	t.Setenv("TMPDIR", t.TempDir())
	bin, lab := binary(t), newLab(t)
	warmUp(t, lab.Node(), bin)
	theirs := newKubeProxy(t, lab)
	for _, pair := range [][2]string{{"ipvs", "nftables"}, {"ipvs", "iptables-nft"}, {"ipvs", "iptables-legacy"}, {"ipvs", "ipvs"},
		{"nftables", "ipvs"}, {"iptables-nft", "ipvs"}, {"iptables-legacy", "ipvs"}} {
		t.Run(fmt.Sprintf("%s to %s", pair[0], pair[1]), func(t *testing.T) { takeOver(t, lab, theirs, bin, pair) })
	}
}

func takeOver(t *testing.T, lab *netlab.Lab, theirs *kubeProxy, bin string, pair [2]string) {
	node := lab.Node()
	found := listing(t, node)
	theirs.start(t, pair[0])
	defer theirs.stop() // once more, in case the test ends early
	tr := takeover.Start(t, lab.Client())
	tr.More(t, 10)
	tr.Check(t, "under kube-proxy")
	theirs.stop()
	agent := start(t, bin, kit.Setup{Lab: lab, Mode: pair[1], Flags: []string{"--ipvs-udp-timeout", "20s", "--ipvs-tcpfin-timeout", "5s"},
		Files: []kit.File{{Name: "web.yaml", Data: serving(1)}}})
	defer agent.Kill() // so that the next agent can start if this test ends early
	takeover.Eventually(t, "nothing of kube-proxy is left but what drains", func() error { return takeover.OnlyMode(t, node, pair[1]) })
	tr.More(t, 20)
	tr.Stop()
	if !tr.Check(t, "with the way to Fairlead") {
		t.Fatalf("%s\n%s", agent.Log(), takeover.Rules(t, node))
	}
	takeover.Eventually(t, "what drained goes with its last connection", func() error {
		out := takeover.Shell(t, node, "ipset list -n | grep KUBE- || true")
		if pair[1] != "ipvs" {
			out += takeover.Shell(t, node, "ip -o link show kube-ipvs0 2>/dev/null || true; grep -- '->' /proc/net/ip_vs | grep -v RemoteAddress || true")
		}
		if out != "" {
			return errors.New(out)
		}
		return nil
	})
	endsWithoutATrace(t, agent, node, found)
	t.Logf("answered: %v", tr.Counts())
}
