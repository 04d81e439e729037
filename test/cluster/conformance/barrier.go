package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// barrier is the kit's canary for a subject with two watches. The canary's slices change with each generation, which proves that the slices
// written before have arrived. Services arrive over a watch of their own, so that here a port of the canary's Service changes too.
type barrier struct {
	canary     kit.Canary
	generation int
}

const barrierPort = "barrier"

func (b *barrier) port() int32 { return int32(7100 + b.generation%2) }

// next returns the objects of the next generation.
func (b *barrier) next() ([]runtime.Object, error) {
	b.generation++
	objs, err := decode(b.canary.Next())
	if err != nil {
		return nil, fmt.Errorf("read the kit's canary: %w", err)
	}
	name, target := barrierPort, int32(7001)
	for _, o := range objs {
		switch o := o.(type) {
		case *corev1.Service:
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: name, Port: b.port(), Protocol: corev1.ProtocolTCP})
		case *discoveryv1.EndpointSlice:
			tcp := corev1.ProtocolTCP
			o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: &name, Port: &target, Protocol: &tcp})
		}
	}
	return objs, nil
}

// wait returns when the generation is in the kernel in both families.
func (b *barrier) wait(ctx context.Context, lab *netlab.Lab) error {
	if err := b.canary.Wait(ctx, lab, settleLimit); err != nil {
		return err
	}
	for _, ip := range []string{"10.96.0.250", "fd00:10:96::250"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(b.port()))
		for {
			once, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			rep := lab.Node().Ask(once, netlab.TCP, to)
			cancel()
			if rep.Outcome == netlab.Answered {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("the change of a Service did not reach the kernel: barrier %s: %s", to, rep)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}
