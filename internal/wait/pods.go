package wait

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// pod is the part of a Pod that shows why it is no endpoint.
type pod struct {
	Metadata struct{ Name string }
	Spec     struct{ Hostname, Subdomain, NodeName string }
	Status   struct {
		Phase, PodIP string
		Conditions   []struct{ Type, Status, Reason, Message string }
	}
}

// explainPods distinguishes "not scheduled" from "no IP" where the pod may list pods. An
// EndpointSlice cannot: such pods are in none.
func (v *verdict) explainPods(ctx context.Context, n *nameServer, p *Params) {
	if len(v.absent) == 0 && v.short == 0 {
		return
	}
	pods, err := listPods(ctx, n.namespace, p)
	if err != nil {
		v.miss("(%v: with the right to list pods, wait reports which of these applies)", err)
		return
	}
	named := map[string]bool{}
	for i := range pods {
		q := &pods[i]
		host := strings.ToLower(q.Spec.Hostname)
		if q.Spec.Subdomain != p.Service || (v.short == 0 && !slices.Contains(v.absent, host)) {
			continue
		}
		named[host] = true
		if why := q.why(); why != "" {
			v.miss("pod %s (%s): %s", q.Metadata.Name, host, why)
		}
	}
	for _, h := range v.absent {
		if !named[h] {
			v.miss("%s: there is no pod with this hostname and subdomain %s", h, p.Service)
		}
	}
}

// why returns the reason why the pod is in no EndpointSlice; "" if it ought to be.
func (q *pod) why() string {
	for _, c := range q.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status != "True" {
			return "not scheduled: " + strings.TrimSpace(c.Reason+" "+c.Message)
		}
	}
	switch {
	case q.Status.Phase == "Succeeded" || q.Status.Phase == "Failed":
		return "has ended: " + q.Status.Phase
	case q.Spec.NodeName == "":
		return "not scheduled"
	case q.Status.PodIP == "":
		return "on node " + q.Spec.NodeName + ", has no IP yet"
	}
	return ""
}

// listPods reads the namespace's pods with the pod's own account. It is plain
// HTTP with JSON: one request does not need a client library in every init
// container.
func listPods(ctx context.Context, namespace string, p *Params) ([]pod, error) {
	token, err := os.ReadFile(filepath.Join(p.Account, "token"))
	if err != nil {
		return nil, fmt.Errorf("cannot list pods: this pod has no service account")
	}
	pool := x509.NewCertPool()
	if ca, err := os.ReadFile(filepath.Join(p.Account, "ca.crt")); err == nil {
		pool.AppendCertsFromPEM(ca)
	}
	u := url.URL{Scheme: "https", Host: net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")),
		Path: "/api/v1/namespaces/" + namespace + "/pods", RawQuery: "limit=2000"}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("cannot list pods: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot list pods: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot list pods: %s", resp.Status)
	}
	var list struct{ Items []pod }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("cannot read the list of pods: %w", err)
	}
	return list.Items, nil
}
