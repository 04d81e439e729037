package dns

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// maxMisses bounds the names whose first miss is remembered.
const maxMisses = 4096

// misses remembers when a name of a headless Service was first asked for in
// vain, for the metric first_miss_to_publish.
type misses struct {
	mu    sync.Mutex
	count int
	since map[model.ServiceKey]map[string]time.Time // by host; "" is the Service's own name
}

func (m *misses) missed(key model.ServiceKey, host string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.since[key][host]; known {
		return
	}
	if m.count >= maxMisses {
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

// forget drops what was asked for long ago: it is a typo rather than a name
// that is late. Half the time, so that it does not run for every query.
func (m *misses) forget(now time.Time) {
	for key, hosts := range m.since {
		for host, at := range hosts {
			if now.Sub(at) > memory/2 {
				delete(hosts, host)
				m.count--
			}
		}
		if len(hosts) == 0 {
			delete(m.since, key)
		}
	}
}

// published gives how long each name of the view was missed.
func (m *misses) published(key model.ServiceKey, v *view, now time.Time) (waited []time.Duration) {
	if v == nil || v.kind != headless {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	hosts := m.since[key]
	for host, at := range hosts {
		if v.has(host) {
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
