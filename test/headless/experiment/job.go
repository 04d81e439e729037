package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/netlab"
)

// job is one broker (flux-0, in the first pod) and its three workers, behind a headless
// Service of its own.
type job struct {
	name    string
	port    int
	timeout time.Duration // ZMQ_CONNECT_TIMEOUT
	role    string        // of the three: worker, oneshot, stall
	start   time.Duration // of the three, after T0
	limit   time.Duration
	park    string // annotation
}

// reply is the output of one process of the job.
type reply struct {
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Late    float64 `json:"late"`
}

func (j *job) host() string { return "flux-0." + j.name + ".jobs.svc.cluster.local" }

func (j *job) service(created time.Time) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: j.name, CreationTimestamp: metav1.NewTime(created)},
		Spec: corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Selector: map[string]string{"job": j.name}},
	}
	if j.park != "" {
		s.Annotations = map[string]string{"fairlead.dev/dns-park": j.park}
	}
	return s
}

func (j *job) slice(pods []*netlab.Host) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: j.name + "-x",
			Labels: map[string]string{discoveryv1.LabelServiceName: j.name, corev1.IsHeadlessService: ""}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	ready := true
	for i, p := range pods {
		host := fmt.Sprintf("flux-%d", i)
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{p.Addrs.V4.String()}, Hostname: &host,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return sl
}

// spawn starts one process of the job in a pod. The process has the pod's resolv.conf,
// through a mount namespace of its own.
func (r *rig) spawn(pod *netlab.Host, out *bytes.Buffer, args ...string) (*netlab.Process, error) {
	script := `mount --bind "$1" /etc/resolv.conf && shift && exec /usr/bin/python3 "$@"`
	line := append([]string{"-m", "sh", "-c", script, "sh", filepath.Join(r.dir, "resolv.conf"), filepath.Join(r.bin, "zmqjob.py")}, args...)
	cmd := exec.Command("unshare", line...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return pod.Start(cmd)
}

func (r *rig) writeResolvConf(server netip.Addr) error {
	text := fmt.Sprintf("search jobs.svc.cluster.local svc.cluster.local cluster.local\nnameserver %s\noptions ndots:5\n", server)
	return os.WriteFile(filepath.Join(r.dir, "resolv.conf"), []byte(text), 0o600)
}

func (r *rig) pods() (list []*netlab.Host, err error) {
	for i := 1; i <= 4; i++ {
		h, err := r.lab.Host(fmt.Sprintf("pod-a%d", i))
		if err != nil {
			return nil, err
		}
		list = append(list, h)
	}
	return list, nil
}

// runJobs runs jobs of one role concurrently: their Services are created at T0, their
// endpoints at T0 + publish. It returns the replies of each job's three workers.
func (r *rig) runJobs(ctx context.Context, jobs []*job, publish time.Duration) (map[*job][]reply, error) {
	pods, err := r.pods()
	if err != nil {
		return nil, err
	}
	s := script{t0: time.Now().Add(6 * time.Second), publish: publish, pods: pods} // the interpreters start before T0
	args := []string{fmt.Sprintf("%.3f", float64(s.t0.UnixMilli())/1000), "--limit", fmt.Sprint(jobs[0].limit.Seconds()),
		"--start", fmt.Sprint(jobs[0].start.Seconds()), "--peer", pods[0].Addrs.V4.String()}
	for _, j := range jobs {
		args = append(args, fmt.Sprintf("%s:%d:%d", j.host(), j.port, j.timeout.Milliseconds()))
	}
	var procs []*netlab.Process
	defer func() {
		for _, p := range procs {
			p.Kill()
		}
	}()
	for i, pod := range pods {
		role, out := jobs[0].role, new(bytes.Buffer)
		if i == 0 {
			role = "broker"
		}
		p, err := r.spawn(pod, out, append([]string{role}, args...)...)
		if err != nil {
			return nil, err
		}
		if procs = append(procs, p); i > 0 {
			s.clients, s.outs = append(s.clients, p), append(s.outs, out)
		}
	}
	return r.play(ctx, jobs, s)
}

// script is the input of play.
type script struct {
	t0      time.Time
	publish time.Duration
	pods    []*netlab.Host
	clients []*netlab.Process
	outs    []*bytes.Buffer
}

func (r *rig) play(ctx context.Context, jobs []*job, s script) (map[*job][]reply, error) {
	sleepUntil(ctx, s.t0.Add(-50*time.Millisecond))
	for _, j := range jobs {
		r.api.Put("services", j.service(s.t0))
	}
	sleepUntil(ctx, s.t0.Add(s.publish))
	for _, j := range jobs {
		r.api.Put("endpointslices", j.slice(s.pods))
	}
	for _, p := range s.clients {
		select {
		case <-p.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	results := map[*job][]reply{}
	for _, j := range jobs {
		r.api.Delete("endpointslices", "jobs", j.name+"-x")
		r.api.Delete("services", "jobs", j.name)
	}
	for _, out := range s.outs {
		if err := collect(out, jobs, results); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// collect reads the output of one process about its jobs.
func collect(out *bytes.Buffer, jobs []*job, results map[*job][]reply) error {
	dec := json.NewDecoder(out)
	for range jobs {
		var rep reply
		if err := dec.Decode(&rep); err != nil {
			return fmt.Errorf("read what %s says: %w", jobs[0].role, err)
		}
		for _, j := range jobs {
			if j.host() == rep.Name {
				results[j] = append(results[j], rep)
			}
		}
	}
	return nil
}

func sleepUntil(ctx context.Context, t time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(t)):
	}
}
