package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// world is all manifests. The lock serializes the clients' reads of a Service and its changes.
type world struct {
	dir  string
	pods []*netlab.Host
	rand *rand.Rand

	mu      sync.Mutex
	all     []*service
	changes int
}

func newWorld(lab *netlab.Lab, dir string, seed uint64) (*world, error) {
	w := &world{dir: dir, rand: rand.New(rand.NewPCG(seed, 1))}
	for _, node := range []string{"a", "b"} {
		for i := 1; i <= podsPerNode; i++ {
			h, err := lab.Host(fmt.Sprintf("pod-%s%d", node, i))
			if err != nil {
				return nil, err
			}
			w.pods = append(w.pods, h)
		}
	}
	for i := range services {
		s := newService(i, w.rand, w.pods)
		w.all = append(w.all, s)
		if err := w.write(s); err != nil {
			return nil, err
		}
	}
	return w, os.WriteFile(filepath.Join(dir, "nodes.yaml"), []byte(nodes), 0o644)
}

// write puts a Service's file in place by rename, so that the agent never reads a partial file, or deletes the
// file.
func (w *world) write(s *service) error {
	path := filepath.Join(w.dir, s.file())
	if !s.exists {
		return os.Remove(path)
	}
	tmp := filepath.Join(w.dir, "."+s.file()+".tmp")
	if err := os.WriteFile(tmp, []byte(s.manifest()), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// churn changes one random Service after the other until ctx ends.
func (w *world) churn(ctx context.Context) error {
	start, done := time.Now(), 0
	tick := time.NewTicker(time.Second / changesPerSec)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// A ticker drops ticks when the machine is busy; this keeps the rate nevertheless.
		due := int(time.Since(start).Seconds() * changesPerSec)
		for ; done < due && ctx.Err() == nil; done++ {
			if err := w.change(); err != nil {
				return err
			}
		}
	}
}

func (w *world) change() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.rand.IntN(services)
	if w.rand.IntN(4) == 0 { // Services that get requests change more often
		i = w.rand.IntN(steadyServices)
	}
	w.all[i].mutate(w.rand, w.pods)
	w.changes++
	return w.write(w.all[i])
}

const nodes = `apiVersion: v1
kind: Node
metadata: {name: node-a}
spec: {podCIDRs: ["10.244.1.0/24", "fd00:10:244:1::/64"]}
status: {addresses: [{type: InternalIP, address: "172.18.0.2"}, {type: InternalIP, address: "fd00:172:18::2"}]}
`
