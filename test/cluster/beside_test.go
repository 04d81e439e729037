package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metricsPage is the page that lists the kube-proxy metrics that Fairlead does not serve, with the reasons.
const metricsPage = "../../docs/metrics.md"

// testMetricsBesideKubeProxy runs the same changes under kube-proxy and under Fairlead and compares their /metrics
// pages. Every metric name of kube-proxy must be served with the same type and labels, or docs/metrics.md must explain
// why not.
func testMetricsBesideKubeProxy(t *testing.T, e *env) {
	bin := filepath.Join(cacheBin(t), "kube-proxy")
	if _, err := os.Stat(bin); err != nil || e.subject.name != "fairlead" {
		t.Skip("needs kube-proxy (test/cluster/build.sh kube-proxy), and Fairlead as the subject") // it compares the two programs
	}
	doc, err := os.ReadFile(metricsPage)
	must(t, err)
	kubeconfig := e.agent.args[len(e.agent.args)-1]
	ours := e.life(e.agent.args)
	e.cleanNode(t)
	theirs := e.life([]string{bin, "--proxy-mode=nftables", "--hostname-override=" + nodeName, "--cluster-cidr=" + netlab.ClusterCIDR4 + "," + netlab.ClusterCIDR6,
		"--conntrack-max-per-core=0", "--conntrack-min=0", kubeconfig})
	compared, differs := 0, 0
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		their := theirs[name]
		if prefix, _, _ := strings.Cut(name, "_"); prefix != "kubeproxy" && prefix != "kubernetes" && prefix != "rest" {
			continue // a metric of the Go runtime, or of a library that kube-proxy registers
		}
		compared++
		our, served := ours[name]
		explained := strings.Contains(string(doc), "`"+name+"`")
		switch {
		case !served && !explained:
			t.Errorf("%s of kube-proxy is not served, and %s does not say why", name, metricsPage)
		case served && (our.kind != their.kind || !slices.Equal(our.labels, their.labels)) && !explained:
			t.Errorf("%s is %s %v, kube-proxy's is %s %v, and %s does not say why", name, our.kind, our.labels, their.kind, their.labels, metricsPage)
		}
		if our.sum != their.sum || our.kind != their.kind || !slices.Equal(our.labels, their.labels) {
			differs++
		}
		t.Logf("%-85s kube-proxy %12.6g   fairlead %12.6g%s", name, their.sum, our.sum, map[bool]string{true: "", false: "   not served"}[served])
		if served && !slices.Equal(our.labels, their.labels) {
			t.Logf("    labels: kube-proxy %v   fairlead %v", their.labels, our.labels)
		}
	}
	t.Logf("%d names compared, %d of them differ in value, type or labels", compared, differs)
	if compared < 20 {
		t.Errorf("only %d names were compared", compared)
	}
	const noLocal = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
	if ours[noLocal].sum != 2 || theirs[noLocal].sum != 4 { // one Service with two ports, in two families
		t.Errorf("%s: %g, kube-proxy has %g", noLocal, ours[noLocal].sum, theirs[noLocal].sum)
	}
}

// life runs a program through the same changes and returns its metrics at the end.
func (e *env) life(args []string) map[string]family {
	e.t.Helper()
	e.deleteObjects()
	e.agent.args = args
	web := clusterIPs(e.createService("web"))
	e.setBackends("web", 8080, "pod-a1")
	e.createService("elsewhere", func(s *corev1.ServiceSpec) {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.InternalTrafficPolicy = &local
	})
	e.setBackends("elsewhere", 8080, "pod-b1")
	e.agent.start()
	defer e.agent.kill()
	e.eventually("the Service answers", e.reach(web, 8080, "pod-a1"))
	for _, pod := range []string{"pod-b1", "pod-a2", "pod-b2"} {
		e.setBackends("web", 8080, pod)
		e.eventually("a change", e.reach(web, 8080, pod))
	}
	e.churn(changesBeside(e.t))
	for _, path := range []string{"/healthz", "/livez"} {
		e.eventually(path, func(ctx context.Context) error { _, err := e.fetch(ctx, "http://127.0.0.1:10256"+path); return err })
	}
	page, err := e.fetch(e.t.Context(), "http://127.0.0.1:10249/metrics")
	must(e.t, err)
	return parse(page)
}

// changesBeside returns the number of further changes that each of the two programs handles. scripts/metrics-beside.sh
// sets it, by default to five minutes of changes.
func changesBeside(t *testing.T) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("FAIRLEAD_BESIDE_CHANGES"), "0"))
	must(t, err)
	return n
}

// churn makes the given number of changes, four a second: it adds and removes endpoints, and now and then a Service.
func (e *env) churn(changes int) {
	e.t.Helper()
	pods := []string{"pod-a1", "pod-a2", "pod-b1", "pod-b2"}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for i := range changes {
		<-tick.C
		switch i % 10 {
		case 3:
			e.createService("passing")
			e.setBackends("passing", 8080, pods[i%4])
		case 8:
			e.deleteService("passing")
			for _, family := range []string{"-4", "-6"} {
				must(e.t, e.cluster.Admin.DiscoveryV1().EndpointSlices(e.namespace).Delete(e.t.Context(), "passing"+family, metav1.DeleteOptions{}))
			}
		default:
			e.setBackends("web", 8080, pods[i%4], pods[(i+1+i/4%3)%4])
		}
	}
}

// fetch sends a request to a server of the node, from inside the node.
func (e *env) fetch(ctx context.Context, url string) (string, error) {
	client := http.Client{Transport: &http.Transport{DialContext: e.lab.Node().Dial, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s says %s", url, resp.Status)
	}
	return string(page), err
}

// family is one metric: its type, its labels, and the sum of its values or counts.
type family struct {
	kind   string
	labels []string
	sum    float64
}

func parse(page string) map[string]family {
	all := map[string]family{}
	name := ""
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			var f family
			fmt.Sscan(rest, &name, &f.kind)
			f.sum = sum(page, name, "") + sum(page, name+"_count", "")
			all[name] = f
			continue
		}
		if strings.HasPrefix(line, "#") || name == "" {
			continue
		}
		f := all[name]
		if _, list, ok := strings.Cut(line, "{"); ok && f.labels == nil {
			for label := range strings.SplitSeq(list[:strings.LastIndexByte(list, '}')], `",`) {
				if key, _, ok := strings.Cut(label, "="); ok && key != "le" {
					f.labels = append(f.labels, key)
				}
			}
			slices.Sort(f.labels)
			all[name] = f
		}
	}
	return all
}
