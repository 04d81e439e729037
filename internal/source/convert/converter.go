package convert

import (
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/model"
)

// maxInterned bounds both tables. A full table is discarded, so that the names of
// old nodes do not accumulate over years. Values that were returned stay valid.
// Names in use enter the new table at their next use.
const maxInterned = 1 << 16

// Converter converts objects. See New.
type Converter struct {
	// LocalEndpoints allows endpoints on loopback addresses. Set it before the first use.
	LocalEndpoints bool

	mu    sync.Mutex
	names map[string]string
	hints map[string]*model.Hints
}

// New returns a Converter with empty tables.
func New() *Converter {
	return &Converter{names: make(map[string]string), hints: make(map[string]*model.Hints)}
}

// intern returns the one copy of s. The copy has its own memory, because the
// decoder's string may be part of a larger one.
func (c *Converter) intern(s string) string {
	if s == "" {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.names[s]; ok {
		return known
	}
	if len(c.names) >= maxInterned {
		clear(c.names)
	}
	s = strings.Clone(s)
	c.names[s] = s
	return s
}

// internHints returns the one copy of an endpoint's hints; nil if there are none.
func (c *Converter) internHints(h *discoveryv1.EndpointHints) *model.Hints {
	if h == nil || len(h.ForZones)+len(h.ForNodes) == 0 {
		return nil
	}
	var key strings.Builder
	for _, z := range h.ForZones {
		key.WriteString(z.Name)
		key.WriteByte(0)
	}
	key.WriteByte(1)
	for _, n := range h.ForNodes {
		key.WriteString(n.Name)
		key.WriteByte(0)
	}
	c.mu.Lock()
	known, ok := c.hints[key.String()]
	c.mu.Unlock()
	if ok {
		return known
	}
	hints := &model.Hints{}
	for _, z := range h.ForZones {
		hints.Zones = append(hints.Zones, c.intern(z.Name))
	}
	for _, n := range h.ForNodes {
		hints.Nodes = append(hints.Nodes, c.intern(n.Name))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hints) >= maxInterned {
		clear(c.hints)
	}
	c.hints[key.String()] = hints
	return hints
}

// Trigger returns the time of the external change that caused the current state of
// an EndpointSlice; zero if the object does not record it.
func Trigger(o metav1.Object) time.Time {
	text, ok := o.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime]
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{} // only a metric uses it, so this is no Problem
	}
	return t
}
