package k8s

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How many agents say the same. There may be 5 000 of them, none knows the others, and no node watches all Nodes. So
// each asks once a day how many Nodes there are, which is one short answer, and draws by a hash of its own name.
const (
	// speakers is how many of all agents are drawn, on average, to say what each of them sees. That none is drawn
	// happens three times in ten thousand.
	speakers = 8
	// eventBucket is how long the API server refuses the same Event again, because it has the same name.
	eventBucket = 30 * time.Minute
	// eventSpread is the time between two Events of the whole fleet that say the same of their own node.
	eventSpread = 20 * time.Millisecond
	// fleetAge is how old the number of Nodes may be.
	fleetAge = 24 * time.Hour
)

// fleet is how many Nodes there are.
type fleet struct {
	nodes int64
	asked time.Time
}

// size returns the number of Nodes, at least 1. A server that does not say leaves it at 1: then every agent speaks, and the
// server refuses all but the first for the Event's name.
func (r *Recorder) size(ctx context.Context) int64 {
	if now := r.clock.Now(); r.fleet.asked.IsZero() || now.Sub(r.fleet.asked) >= fleetAge {
		r.fleet.asked = now
		n, err := r.source.countNodes(ctx)
		if err != nil {
			r.source.config.Log.Debug("the number of nodes is unknown", "err", err)
		}
		r.fleet.nodes = n
	}
	return max(1, r.fleet.nodes)
}

// countNodes asks for a list of one Node: the answer says how many there are besides.
func (s *Source) countNodes(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	var list corev1.NodeList
	err := s.clients.events.Get().Resource("nodes").VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec).Do(ctx).Into(&list)
	if err != nil {
		return 0, fmt.Errorf("count nodes: %w", err)
	}
	n := int64(len(list.Items))
	if list.RemainingItemCount != nil {
		n += *list.RemainingItemCount
	}
	return n, nil
}

// lot is this agent's place among all that could say the same: a number from 0 to 1.
func (r *Recorder) lot(e *corev1.Event) float64 {
	return float64(sum(r.host, e.Name)) / math.MaxUint64
}

// drawn reports whether this agent is one of those that say what all of them see.
func drawn(lot float64, nodes int64) bool { return lot*float64(nodes) < speakers }

// eventName is the same on every node that has the same to say of an object at about the same time.
func eventName(ref *corev1.ObjectReference, reason, message string, now time.Time) string {
	bucket := strconv.FormatInt(now.Unix()/int64(eventBucket/time.Second), 10)
	return fmt.Sprintf("%s.%016x", ref.Name, sum(string(ref.UID), ref.Namespace, reason, message, bucket))
}

// sum is a hash that is the same in every process. FNV alone leaves words that differ in their last letters close
// together; what follows spreads them.
func sum(words ...string) uint64 {
	h := fnv.New64a()
	for _, w := range words {
		h.Write([]byte(w))
		h.Write([]byte{0})
	}
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
