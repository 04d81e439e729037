package k8s

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// The source keeps no second copy: of 50 000 endpoints it holds next to nothing,
// and what it hands over is small.
func TestMemory(t *testing.T) {
	const count, each = 500, 100
	f := newFakeAPI(t)
	nodes := []string{"node-a.example", "node-b.example", "node-c.example"}
	zone, ready := "europe-west1-b", true
	for i := range count {
		s := slice(fmt.Sprintf("web-%d", i))
		for j := range each {
			n := i*each + j
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255)}, NodeName: &nodes[n%3], Zone: &zone,
				Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
				Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}},
			})
		}
		f.put("endpointslices", s)
	}
	before := liveHeap()
	l := start(t, f, nil)
	l.until(t, "synced", l.synced)
	with := liveHeap()
	l.see(func() { clear(l.slices); l.slices = nil; l.log = []string{"synced " + Name}; clear(l.triggers) })
	without := liveHeap()
	perEndpoint := float64(with-without) / (count * each)
	kept := float64(without-before) / (count * each)
	t.Logf("%.0f bytes an endpoint are handed over, %.1f stay", perEndpoint, kept)
	// 88 bytes are model.Endpoint itself; of what stays, most is the connection.
	if perEndpoint > 110 || perEndpoint < 80 || kept > 30 {
		t.Errorf("%.0f bytes an endpoint are handed over, %.1f stay", perEndpoint, kept)
	}
	runtime.KeepAlive(f)
}

// liveHeap is what is in use once the connection's goroutines have let go of what they have read.
func liveHeap() int64 {
	const near = 64 << 10
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers and pools held
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	last := heap()
	for range 100 {
		time.Sleep(20 * time.Millisecond) // no event reports that a goroutine has come to rest
		now := heap()
		if last-now < near && now-last < near {
			return now
		}
		last = now
	}
	return last
}
