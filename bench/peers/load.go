package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/test/cluster/testcluster"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const namespace = "default"

// load adds Services from..to, and at the first call the node and the canary, all through etcd (see Store). The changes of
// the subjects and of the probes go through the API server.
func (c *control) load(ctx context.Context, from, to int) error {
	start := time.Now()
	if from == 0 {
		if err := c.loadFixtures(ctx); err != nil {
			return err
		}
	}
	const batch = testcluster.StoreLimit / objectsEach
	for i := from; i < to; i += batch {
		var objects []testcluster.Stored
		for k := i; k < min(i+batch, to); k++ {
			objects = append(objects, stored(service(k), slice(serviceName(k), acceptPort, endpoints(k, c.endpoints, c.endpoints)))...)
		}
		if err := c.cluster.Store(ctx, objects); err != nil {
			return fmt.Errorf("load services from %d: %w", i, err)
		}
	}
	if err := c.allVisible(ctx, to); err != nil {
		return err
	}
	fmt.Printf("loaded %d Services with %d endpoints each in %.1f s\n", to-from, c.endpoints, time.Since(start).Seconds())
	return nil
}

func (c *control) loadFixtures(ctx context.Context) error {
	// node-a of every lab has the same address.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelHostname: nodeName}},
		Spec: corev1.NodeSpec{PodCIDR: "10.128.0.0/24", PodCIDRs: []string{"10.128.0.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: nodeName},
			{Type: corev1.NodeInternalIP, Address: c.lab.Node().Addrs.V4.String()}}}}
	if _, err := c.api.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", nodeName, err)
	}
	canary := baseService("canary", canaryIP.String(), canaryPort, namePort)
	return c.cluster.Store(ctx, stored(canary, slice("canary", namePort, []discoveryv1.Endpoint{endpoint(canaryPods[0].String(), false)})))
}

// allVisible waits until the API server serves the loaded objects, from the cache that feeds the watches.
func (c *control) allVisible(ctx context.Context, n int) error {
	name := serviceName(n-1) + "-1"
	for range 600 {
		_, err := c.api.DiscoveryV1().EndpointSlices(namespace).Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get endpoint slice %s: %w", name, err)
		}
		if !pause(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("get endpoint slice %s: the API server does not show it", name)
}

// setEndpoints updates the endpoints of a Service, with the timestamp that the EndpointSlice controller sets, for the
// programming latency.
func (c *control) setEndpoints(ctx context.Context, service string, port int32, eps []discoveryv1.Endpoint) error {
	sl := slice(service, port, eps)
	sl.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)}
	if _, err := c.api.DiscoveryV1().EndpointSlices(namespace).Update(ctx, sl, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update endpoint slice %s: %w", sl.Name, err)
	}
	return nil
}

// pause waits, and reports whether the run continues.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
