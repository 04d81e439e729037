package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const namespace = "default"

const loaders = 24

// load adds Services from..to, and at the first call the node and the canary.
func (c *control) load(ctx context.Context, from, to int) error {
	start := time.Now()
	if from == 0 {
		if err := c.loadFixtures(ctx); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	next.Store(int64(from))
	for range loaders {
		g.Go(func() error {
			for i := int(next.Add(1) - 1); i < to; i = int(next.Add(1) - 1) {
				if err := c.create(ctx, service(i), slice(serviceName(i), acceptPort, endpoints(i, c.endpoints, c.endpoints))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
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
	return c.create(ctx, canary, slice("canary", namePort, []discoveryv1.Endpoint{endpoint(canaryPods[0].String(), false)}))
}

// create makes a Service and its slice. The server sheds load now and then, so each is tried a few times.
func (c *control) create(ctx context.Context, svc *corev1.Service, sl *discoveryv1.EndpointSlice) error {
	err := retry(ctx, func() error {
		_, err := c.api.CoreV1().Services(namespace).Create(ctx, svc, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create service %s: %w", svc.Name, err)
	}
	err = retry(ctx, func() error {
		_, err := c.api.DiscoveryV1().EndpointSlices(namespace).Create(ctx, sl, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create endpoint slice %s: %w", sl.Name, err)
	}
	return nil
}

func retry(ctx context.Context, f func() error) (err error) {
	for range 6 {
		if err = f(); err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
	}
	return err
}

func baseService(name, ip string, port, target int32) *corev1.Service {
	single := corev1.IPFamilyPolicySingleStack
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, IPFamilyPolicy: &single,
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt32(target)}}}}
}

func service(i int) *corev1.Service {
	s := baseService(serviceName(i), serviceIP(i).String(), servicePort, acceptPort)
	if isNodePort(i) {
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, int32(nodePort(i))
	}
	return s
}

// endpoints are the first count of a Service's e endpoints; a fifth of them is on the node under test.
func endpoints(i, e, count int) (all []discoveryv1.Endpoint) {
	for j := range count {
		all = append(all, endpoint(endpointIP(i, e, j).String(), j < e/5))
	}
	return all
}

func endpoint(ip string, local bool) discoveryv1.Endpoint {
	node, yes, no := "node1", true, false
	if local {
		node = nodeName
	}
	return discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: &node,
		Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}}
}

func slice(service string, port int32, eps []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	name, tcp := "http", corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: eps,
		ObjectMeta: metav1.ObjectMeta{Name: service + "-1", Namespace: namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "fairlead-peers"}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &tcp, Port: &port}}}
}

// setEndpoints changes the endpoints of a Service, stamped as the EndpointSlice controller does, for the programming latency.
func (c *control) setEndpoints(ctx context.Context, service string, port int32, eps []discoveryv1.Endpoint) error {
	sl := slice(service, port, eps)
	sl.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339Nano)}
	if _, err := c.api.DiscoveryV1().EndpointSlices(namespace).Update(ctx, sl, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update endpoint slice %s: %w", sl.Name, err)
	}
	return nil
}

// pause waits, and says whether the run goes on.
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
