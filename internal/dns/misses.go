package dns

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// maxMisses bounds the names whose first miss is remembered.
const maxMisses = 4096

const (
	missMemory  = 5 * time.Minute
	sweepMisses = 10 * time.Second
)

// misses holds when a name of a headless Service was first asked for without success,
// for the metric first_miss_to_publish.
type misses struct {
	mu    sync.Mutex
	count int
	swept time.Time                                 // when forget ran last
	since map[model.ServiceKey]map[string]time.Time // by host; "" is the Service's own name
}

func (m *misses) missed(key model.ServiceKey, host string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.since[key][host]; known {
		return
	}
	if m.count >= maxMisses && now.Sub(m.swept) >= sweepMisses {
		m.forget(now)
	}
	if m.count >= maxMisses {
		return
	}
	if m.since[key] == nil {
		m.since[key] = map[string]time.Time{}
	}
	m.since[key][host] = now
	m.count++
}

// forget drops names that were asked for long ago: such a name is a typo rather than a name
// that is late. It scans all entries, so it runs at most once in sweepMisses. Names
// that are missed while the map is full are not remembered.
func (m *misses) forget(now time.Time) {
	m.swept = now
	for key, hosts := range m.since {
		for host, at := range hosts {
			if now.Sub(at) > missMemory {
				delete(hosts, host)
				m.count--
			}
		}
		if len(hosts) == 0 {
			delete(m.since, key)
		}
	}
}

// published returns, for each missed name that the Service has now, how long it was missed.
func (m *misses) published(key model.ServiceKey, has func(host string) bool, now time.Time) (waited []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	hosts := m.since[key]
	for host, at := range hosts {
		if has(host) {
			waited = append(waited, now.Sub(at))
			delete(hosts, host)
			m.count--
		}
	}
	if hosts != nil && len(hosts) == 0 {
		delete(m.since, key)
	}
	return waited
}
