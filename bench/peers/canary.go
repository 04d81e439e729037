package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// canary is a Service with one endpoint that moves between two pods. It shows when a change has reached the packets,
// for any proxy.
type canary struct {
	c    *control
	node *node
	at   int // index of canaryPods
}

var canaryAddr = netip.AddrPortFrom(canaryIP, canaryPort)

const flipLimit = 2 * time.Minute

func (k *canary) put(ctx context.Context, at int) error {
	k.at = at
	return k.c.setEndpoints(ctx, "canary", namePort, []discoveryv1.Endpoint{endpoint(canaryPods[at].String(), false)})
}

// flip moves the endpoint. It returns the time from just before the write to the API until the first of two consecutive
// connections that reach the new endpoint, and the part of it that the write took.
func (k *canary) flip(ctx context.Context) (total, write time.Duration, err error) {
	start := time.Now()
	if err := k.put(ctx, 1-k.at); err != nil {
		return 0, 0, err
	}
	write = time.Since(start)
	var first time.Duration
	for time.Since(start) < flipLimit {
		pod, err := who(ctx, k.node.client, canaryAddr)
		switch {
		case err != nil || pod != canaryPods[k.at]:
			first = 0
		case first == 0:
			first = time.Since(start)
			continue
		default:
			return first, write, nil
		}
		if !pause(ctx, time.Millisecond) {
			return 0, 0, ctx.Err()
		}
	}
	return 0, 0, fmt.Errorf("move the canary to %s: not reached in %s", canaryPods[k.at], flipLimit)
}
