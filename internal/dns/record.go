package dns

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// kind is what sort of Service a record is of.
type kind uint8

const (
	noService kind = iota // slices only: the Service was not received yet, or was deleted
	clusterIP
	headless
	external
)

// String is the value of the metric label service_kind.
func (k kind) String() string {
	return [...]string{"none", "cluster_ip", "headless", "external_name"}[k]
}

// memory is how long a hostname that was published counts as about to come
// back: the time a restart of its pod takes (docs/headless.md, parking rules).
const memory = 10 * time.Minute

// maxLeft bounds the hostnames remembered for one Service.
const maxLeft = 1024

// record is the state of one Service key. The Service may be nil: slices often come
// first. Slices are shared with package state, so storing them costs a pointer each.
// A record is guarded by Store.mu.
//
// The names of a headless Service are updated by what each slice adds and removes,
// so that an update of one slice costs what that slice holds and not what
// the Service does.
type record struct {
	key     model.ServiceKey
	service *model.Service
	created time.Time
	seen    time.Time      // when the Service appeared, if that was after the first list
	slices  []*model.Slice // sorted by key

	addrs   families         // of the Service's own name
	hosts   map[string]*host // headless: what the slices hold, by hostname
	waiting int              // endpoints in slices that are not ready
	left    map[string]time.Time
	leftAt  time.Time              // the latest time in left
	census  atomic.Pointer[census] // cache, filled when a status is asked for; nil when stale
}

// host is one hostname of a headless Service.
type host struct {
	ready   families
	waiting int // endpoints of the name that are not ready
}

func (r *record) kind() kind {
	switch {
	case r == nil || r.service == nil:
		return noService
	case r.service.ExternalName != "":
		return external
	case r.service.Headless:
		return headless
	}
	return clusterIP
}

// setService replaces the Service and all names with it.
func (r *record) setService(svc *model.Service, s *Store) {
	r.unpublish(s)
	r.service = svc
	if svc == nil {
		return
	}
	r.created = r.seen
	if svc.Created != 0 {
		r.created = time.Unix(svc.Created, 0)
	}
	switch r.kind() {
	case clusterIP:
		for _, ip := range svc.ClusterIPs {
			if r.addrs.of(ip).add(ip) {
				s.point(ip, pointer{r.key, ""})
			}
		}
	case headless:
		r.hosts = map[string]*host{}
		for _, sl := range r.slices {
			r.publish(sl, s)
		}
	}
}

// unpublish removes all names.
func (r *record) unpublish(s *Store) {
	switch r.kind() {
	case clusterIP:
		for _, ip := range r.service.ClusterIPs {
			s.unpoint(ip, pointer{r.key, ""})
		}
	case headless:
		for _, sl := range r.slices {
			r.withdraw(sl, s)
		}
	}
	r.addrs, r.hosts, r.waiting = families{}, nil, 0
}

// publish adds the names of a slice: every endpoint whose condition ready is true.
// The controller sets it for all of them under publishNotReadyAddresses, so the
// Service's field is not checked again.
func (r *record) publish(sl *model.Slice, s *Store) {
	for i := range sl.Endpoints {
		e := &sl.Endpoints[i]
		name := hostOf(e)
		h := r.hosts[name]
		if h == nil {
			h = &host{}
			r.hosts[name] = h
		}
		if !e.Ready {
			h.waiting++
			r.waiting++
			continue
		}
		delete(r.left, name)
		r.addrs.of(e.Addr).add(e.Addr)
		if h.ready.of(e.Addr).add(e.Addr) {
			s.point(e.Addr, pointer{r.key, name})
		}
	}
}

// withdraw removes what publish has added for the slice.
func (r *record) withdraw(sl *model.Slice, s *Store) {
	for i := range sl.Endpoints {
		e := &sl.Endpoints[i]
		name := hostOf(e)
		h := r.hosts[name]
		if !e.Ready {
			h.waiting--
			r.waiting--
		} else {
			r.addrs.of(e.Addr).remove(e.Addr)
			if h.ready.of(e.Addr).remove(e.Addr) {
				s.unpoint(e.Addr, pointer{r.key, name})
			}
			if h.ready.empty() {
				r.leave(name, s.now())
			}
		}
		if h.waiting == 0 && h.ready.empty() {
			delete(r.hosts, name)
		}
	}
}

// leave remembers a hostname that is published no more.
func (r *record) leave(name string, now time.Time) {
	if len(r.left) >= maxLeft {
		for old, at := range r.left {
			if now.Sub(at) > memory {
				delete(r.left, old)
			}
		}
	}
	if r.left == nil {
		r.left = map[string]time.Time{}
	}
	if len(r.left) < maxLeft {
		r.left[name], r.leftAt = now, now
	}
}

// replaceSlice puts a slice in the place of an older one; either may be nil.
func (r *record) replaceSlice(old, sl *model.Slice, s *Store) {
	live := r.kind() == headless
	if sl != nil && live {
		r.publish(sl, s) // first, so that a name that stays does not leave in between
	}
	if old != nil {
		r.slices = slices.DeleteFunc(r.slices, func(o *model.Slice) bool { return o == old })
		if live {
			r.withdraw(old, s)
		}
	}
	if sl != nil {
		at, _ := slices.BinarySearchFunc(r.slices, sl.Key, func(o *model.Slice, k model.SliceKey) int {
			return model.ServiceKey(o.Key).Compare(model.ServiceKey(k))
		})
		r.slices = slices.Insert(r.slices, at, sl)
	}
}

// has reports whether a host, or with "" the Service itself, is published.
func (r *record) has(name string) bool {
	if name == "" {
		return !r.addrs.empty()
	}
	h := r.hosts[name]
	return h != nil && !h.ready.empty()
}

// podsNamed returns the ready endpoints of one name below a Service with a cluster IP: CoreDNS has such names too. It
// searches the slices, because an index would cost memory for each endpoint of the cluster and few programs ask.
func (r *record) podsNamed(name string) *families {
	f, addr := &families{}, undashed(name)
	for _, sl := range r.slices {
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			if e.Ready && (e.Hostname == "" && e.Addr == addr || strings.EqualFold(e.Hostname, name)) {
				f.of(e.Addr).add(e.Addr)
			}
		}
	}
	return f
}

// hostOf returns an endpoint's label: its hostname, else its address with dashes,
// which is the identifier that CoreDNS uses too.
func hostOf(e *model.Endpoint) string {
	if e.Hostname != "" {
		return strings.ToLower(e.Hostname)
	}
	return dashed(e.Addr)
}

func dashed(a netip.Addr) string {
	label := strings.Map(dash, a.String())
	if label[0] == '-' || label[len(label)-1] == '-' { // invalid as a label, e.g. of fe80::
		label = strings.Map(dash, a.StringExpanded())
	}
	return label
}

// undashed returns the address whose label is name; the zero Addr if there is none.
func undashed(name string) netip.Addr {
	for _, separator := range []string{".", ":"} {
		if a, err := netip.ParseAddr(strings.ReplaceAll(name, "-", separator)); err == nil && dashed(a) == name {
			return a
		}
	}
	return netip.Addr{}
}

func dash(r rune) rune {
	if r == '.' || r == ':' {
		return '-'
	}
	return r
}
