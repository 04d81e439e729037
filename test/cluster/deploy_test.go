package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deployFile is what a user applies; the whole suite's service account comes from it.
const deployFile = "../../deploy/fairlead.yaml"

const healthPort = 31999

// inPod gives a program the files of its pod, by mounts that nobody else sees: its service account and its ConfigMap.
const inPod = `mount -t tmpfs pod /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount &&
cp "$1"/token "$1"/ca.crt /run/secrets/kubernetes.io/serviceaccount/ &&
mount -t overlay -o lowerdir="$1"/etc:/etc etc /etc && shift && exec "$@"`

// testDeployed runs the agent as the DaemonSet of deploy/ says: its arguments and environment, the ConfigMap's file, the
// in-cluster way to the API server with no rights but its own, and asks the probes of the manifest.
func testDeployed(t *testing.T, e *env) {
	if e.subject.name != "fairlead" {
		t.Skip("deploy/ is Fairlead's")
	}
	ds, err := e.cluster.Admin.AppsV1().DaemonSets("kube-system").Get(t.Context(), "fairlead", metav1.GetOptions{})
	must(t, err)
	pod := e.podFiles(ds)
	c := &ds.Spec.Template.Spec.Containers[0]
	args := []string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", inPod, "sh", pod, "env"}
	for _, v := range c.Env {
		args = append(args, v.Name+"="+e.valueOf(v))
	}
	args = append(args, e.subject.args[0])
	for _, a := range c.Args {
		args = append(args, strings.ReplaceAll(a, "$(NODE_NAME)", nodeName))
	}
	e.agent.args = args

	web := clusterIPs(e.createService("web"))
	e.setBackends("web", 8080, "pod-a1", "pod-b1")
	e.agent.start()
	e.eventually("the Service answers", e.reach(web, 8080, "pod-a1", "pod-b1"))
	e.eventually("the liveness probe", e.probe(c.LivenessProbe))
	e.eventually("the readiness probe", e.probe(c.ReadinessProbe))
	taken, err := e.lab.Node().Listen(t.Context(), netip.AddrPortFrom(netip.IPv4Unspecified(), healthPort))
	must(t, err)
	defer taken.Close()
	e.createService("unlucky", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy, s.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, healthPort
	})
	e.eventually("an Event about a health check port that somebody else has", e.warned())
	e.agent.mustLive()
	e.agent.terminate()
}

// podFiles writes what the kubelet would mount, with the pods' ranges that a user writes, and gives the folder.
func (e *env) podFiles(ds *appsv1.DaemonSet) string {
	e.t.Helper()
	pod := e.t.TempDir()
	must(e.t, e.cluster.WriteToken(filepath.Join(pod, "token"), time.Hour))
	ca, err := os.ReadFile(filepath.Join(e.dir, "ca.crt"))
	must(e.t, err)
	must(e.t, os.WriteFile(filepath.Join(pod, "ca.crt"), ca, 0o600))
	for _, v := range ds.Spec.Template.Spec.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		at := slices.IndexFunc(ds.Spec.Template.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
		dir := filepath.Join(pod, ds.Spec.Template.Spec.Containers[0].VolumeMounts[at].MountPath)
		must(e.t, os.MkdirAll(dir, 0o755))
		files, err := e.cluster.Admin.CoreV1().ConfigMaps(ds.Namespace).Get(e.t.Context(), v.ConfigMap.Name, metav1.GetOptions{})
		must(e.t, err)
		for name, text := range files.Data {
			text = strings.Replace(text, `clusterCIDR: ""`, "clusterCIDR: "+netlab.ClusterCIDR4+","+netlab.ClusterCIDR6, 1)
			must(e.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	return pod
}

// valueOf is a variable's value, with the address that a user writes in place of the manifest's example.
func (e *env) valueOf(v corev1.EnvVar) string {
	switch {
	case v.ValueFrom != nil && v.ValueFrom.FieldRef.FieldPath == "spec.nodeName":
		return nodeName
	case v.Value == "API-SERVER-ADDRESS":
		host, err := e.lab.Host("client2")
		must(e.t, err)
		return host.Addrs.V4.String()
	}
	return v.Value
}

// probe does what the kubelet does, in the node's network.
func (e *env) probe(p *corev1.Probe) func(context.Context) error {
	get := p.HTTPGet
	client := http.Client{Transport: &http.Transport{DialContext: e.lab.Node().Dial, DisableKeepAlives: true}, Timeout: time.Second}
	return func(ctx context.Context) error {
		url := "http://" + net.JoinHostPort(get.Host, get.Port.String()) + get.Path
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		a, err := client.Do(r)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		if a.StatusCode != http.StatusOK {
			return fmt.Errorf("%s says %s", url, a.Status)
		}
		return nil
	}
}

// warned: the agent may write Events, and wrote one about a Service of this test.
func (e *env) warned() func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := e.cluster.Admin.EventsV1().Events(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, ev := range list.Items {
			if ev.Type == corev1.EventTypeWarning && ev.Regarding.Kind == "Service" {
				return nil
			}
		}
		return fmt.Errorf("%d Events, none of them a warning about a Service", len(list.Items))
	}
}
