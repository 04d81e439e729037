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

// These constants limit how many agents report the same Event. There may be 5 000 agents, none knows the others, and
// no node watches all Nodes. So each agent requests the number of Nodes once a day, which is one short answer, and
// draws by a hash of its own name.
const (
	// speakers is how many of all agents are drawn, on average, to report what every agent sees. The probability
	// that none is drawn is three in ten thousand.
	speakers = 8
	// eventBucket is how long the API server refuses a repeated Event, because it has the same name.
	eventBucket = 30 * time.Minute
	// eventSpread is the average time between two Events in the whole fleet when all agents report the
	// same of their own node.
	eventSpread = 20 * time.Millisecond
	// fleetAge is the maximum age of the cached number of Nodes.
	fleetAge = 24 * time.Hour
)

// fleet caches the number of Nodes.
type fleet struct {
	nodes int64
	asked time.Time
}

// size returns the number of Nodes, at least 1. If the server does not report it, size returns 1. Then every agent reports,
// and the server refuses all but the first Event because they have the same name.
func (r *Recorder) size(ctx context.Context) int64 {
	if now := r.clock.Now(); r.fleet.asked.IsZero() || now.Sub(r.fleet.asked) >= fleetAge {
		r.fleet.asked = now
		n, err := r.source.countNodes(ctx)
		if err != nil {
			r.source.config.Log.Debug("cannot count the nodes", "err", err)
		}
		r.fleet.nodes = n
	}
	return max(1, r.fleet.nodes)
}

// countNodes requests a list of one Node. The answer contains the number of the
// remaining ones.
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

// lot returns this agent's draw among all agents that could report the same Event: a
// number from 0 to 1.
func (r *Recorder) lot(e *corev1.Event) float64 {
	return float64(sum(r.host, e.Name)) / math.MaxUint64
}

// drawn reports whether this agent is one of those that report what every agent
// sees.
func drawn(lot float64, nodes int64) bool { return lot*float64(nodes) < speakers }

// eventName returns a name that is the same on every node that reports the same of an object at
// about the same time.
func eventName(ref *corev1.ObjectReference, reason, message string, now time.Time) string {
	bucket := strconv.FormatInt(now.Unix()/int64(eventBucket/time.Second), 10)
	return fmt.Sprintf("%s.%016x", ref.Name, sum(string(ref.UID), ref.Namespace, reason, message, bucket))
}

// sum returns a hash that is the same in every process. FNV alone maps words that differ in their last letters to
// nearby values. The steps after it spread them.
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
