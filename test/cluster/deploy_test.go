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

// deployFile is the manifest that a user applies. It also defines the service account of the whole suite.
const deployFile = "../../deploy/fairlead.yaml"

const healthPort = 31999

// inPod provides a program with the files of its pod: its service account, its ConfigMap, and no name server. The mounts are
// private to the program.
const inPod = `mount -t tmpfs pod /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount &&
cp "$1"/token "$1"/ca.crt /run/secrets/kubernetes.io/serviceaccount/ &&
mount -t overlay -o lowerdir="$1"/etc:/etc etc /etc && shift && exec "$@"`

// confined restricts a container as a container runtime does without "privileged": kernel settings and the root file system
// are read-only.
const confined = `mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys &&
mount --rbind /sys /sys && mount -o remount,bind,ro /sys && mount -o remount,bind,ro / && exec "$@"`

// deployed returns the DaemonSet of deploy/ as the API server stored it.
func (e *env) deployed() *appsv1.DaemonSet {
	e.t.Helper()
	ds, err := e.cluster.Admin.AppsV1().DaemonSets("kube-system").Get(e.t.Context(), "fairlead", metav1.GetOptions{})
	must(e.t, err)
	return ds
}

// container returns the command line that runs c as the kubelet would, in a pod whose files are in the folder pod. edit holds
// the environment variables that a user changes.
func (e *env) container(c *corev1.Container, pod string, edit map[string]string) []string {
	args := []string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", inPod, "sh", pod}
	if s := c.SecurityContext; s.Privileged == nil || !*s.Privileged {
		bounding := "-all"
		for _, capability := range s.Capabilities.Add {
			bounding += ",+" + strings.ToLower(string(capability))
		}
		args = append(args, "sh", "-ec", confined, "sh", "setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set="+bounding)
	}
	args = append(args, "env")
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef.FieldPath == "spec.nodeName" {
			value = nodeName
		}
		if by, ok := edit[value]; ok {
			value = by
		}
		args = append(args, v.Name+"="+value)
	}
	args = append(args, e.subject.args[0])
	for _, a := range c.Args {
		args = append(args, strings.ReplaceAll(a, "$(NODE_NAME)", nodeName))
	}
	return args
}

// apiServer returns the environment that a user sets in place of the manifest's example.
func (e *env) apiServer() map[string]string {
	e.t.Helper()
	host, err := e.lab.Host("client2")
	must(e.t, err)
	return map[string]string{"API-SERVER-ADDRESS": host.Addrs.V4.String()}
}

// testDeployed runs the agent as the DaemonSet of deploy/ specifies: its arguments, environment and capabilities, the file of
// the ConfigMap, a read-only root file system, and in-cluster access to the API server with the rights of its own service
// account only.
func testDeployed(t *testing.T, e *env) {
	if e.subject.name != "fairlead" {
		t.Skip("deploy/ is Fairlead's") // with SUBJECT=kube-proxy there is nothing to deploy
	}
	ds := e.deployed()
	e.checkPod(&ds.Spec.Template.Spec)
	pod := e.podFiles(ds)
	const closeWait = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
	first := e.container(&ds.Spec.Template.Spec.InitContainers[0], pod, nil)
	if out, err := e.lab.Node().Run(t.Context(), first[0], first[1:]...); err != nil {
		t.Fatalf("the init container: %v\n%s", err, out)
	}
	if out, err := e.lab.Node().Run(t.Context(), "cat", closeWait); err != nil || strings.TrimSpace(out) != "3600" {
		t.Errorf("after the init container %s is %q, %v; want 3600", closeWait, out, err)
	}
	c := &ds.Spec.Template.Spec.Containers[0]
	e.agent.args = e.container(c, pod, e.apiServer())

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
	e.eventually("an Event about a health check port that somebody else has", e.warned("FailedToStartServiceHealthcheck", "unlucky"))
	e.createService("claims-1", external("192.0.2.77"))
	e.createService("claims-2", external("192.0.2.77"))
	e.eventually("an Event about an address that is another Service's", e.warned("AddressClaimed", "claims-2"))
	e.agent.mustLive()
	for _, complaint := range []string{"cannot set a sysctl", "operation not permitted", "permission denied", "stale UDP flows will not be removed"} {
		if strings.Contains(e.agent.said(), complaint) {
			t.Errorf("the agent misses a right: its log says %q", complaint)
		}
	}
	e.agent.terminate()
}

// checkPod checks the pod against the documented properties of deploy/.
func (e *env) checkPod(p *corev1.PodSpec) {
	c := p.Containers[0]
	if s := c.SecurityContext; s.Privileged != nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || fmt.Sprint(s.Capabilities.Drop) != "[ALL]" {
		e.t.Errorf("the agent's rights: %+v", s)
	}
	if p.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || p.NodeSelector[corev1.LabelOSStable] != "linux" {
		e.t.Errorf("seccomp %v, nodes %v", p.SecurityContext.SeccompProfile, p.NodeSelector)
	}
	if m := c.Resources; m.Requests.Memory().Value() < 130<<20 || m.Limits.Memory().Value() < 272<<20 {
		e.t.Errorf("memory: %v", m)
	}
	mounted := map[string]bool{}
	for _, m := range c.VolumeMounts {
		mounted[m.Name] = true
	}
	for _, v := range p.Volumes {
		if !mounted[v.Name] || v.HostPath != nil {
			e.t.Errorf("volume %s: mounted %t, of the host %t", v.Name, mounted[v.Name], v.HostPath != nil)
		}
	}
}

// podFiles writes the files that the kubelet would mount, with the pod CIDRs that a user writes, and returns the folder.
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
			// nf_conntrack_max and its hash table belong to the whole machine, not to the lab.
			text += "conntrack: {maxPerCore: 0, min: 0}\n"
			text = strings.Replace(text, `clusterCIDR: ""`, "clusterCIDR: "+netlab.ClusterCIDR4+","+netlab.ClusterCIDR6, 1)
			must(e.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	must(e.t, os.WriteFile(filepath.Join(pod, "etc", "resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644))
	return pod
}

// probe runs a probe as the kubelet does, in the node's network namespace.
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

// warned checks that the agent wrote an Event for this reason. The agent may write Events, and may count Nodes for the Events
// that it shares with other agents.
func (e *env) warned(reason, service string) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := e.cluster.Admin.EventsV1().Events(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, ev := range list.Items {
			if ev.Type == corev1.EventTypeWarning && ev.Regarding.Kind == "Service" && ev.Reason == reason && ev.Regarding.Name == service {
				return nil
			}
		}
		return fmt.Errorf("%d Events, none of them %s about the Service %s", len(list.Items), reason, service)
	}
}
