package property

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// paper renders as a driver does, but into a map instead of a kernel.
type paper struct {
	dataplane.Driver
	holds map[dataplane.Key]string
}

func (p paper) Load(_ context.Context, emit func(dataplane.Key, string)) error {
	for k, v := range p.holds {
		emit(k, v)
	}
	return nil
}

func (p paper) Apply(_ context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	for _, op := range b.Ops {
		if p.holds[op.Key] = op.Want; op.Want == "" {
			delete(p.holds, op.Key)
		}
	}
	return dataplane.Applied{Operations: len(b.Ops)}, nil
}

// Part implements dataplane.Parter.
func (p paper) Part(k dataplane.Key) (dataplane.Key, bool) {
	if d, has := p.Driver.(dataplane.Parter); has {
		return d.Part(k)
	}
	return dataplane.Key{}, false
}

func (p paper) Watch(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }

func (p paper) Changed(context.Context) (bool, error) { return false, nil }

// plain returns the contents of the map, with the slots of pools in order.
func (p paper) plain() map[dataplane.Key]string {
	out := maps.Clone(p.holds)
	for k, v := range out {
		if w := p.Width(k); w > 0 {
			slots := slices.Sorted(func(yield func(string) bool) {
				for at := 0; at < len(v) && yield(v[at:at+w]); at += w {
				}
			})
			out[k] = strings.Join(slices.DeleteFunc(slots, func(s string) bool { return strings.Trim(s, "\x00") == "" }), "")
		}
	}
	return out
}

// onPaper runs an agent, and stops it when do returns.
func onPaper(t *testing.T, p paper, oneList bool, do func(a *engine.Engine, put func(...model.Event))) {
	mail := mailbox.New()
	e := engine.New(engine.Params{Driver: p, Families: []model.Family{model.IPv4, model.IPv6}, Mailbox: mail, NodeName: "n", Sources: []string{"test"}, OneList: oneList,
		View: policy.ViewInputs{NodePortPrimary: true, MasqueradeBit: 14},
		OnTurn: func(tu *engine.Turn) {
			if tu.Err != nil {
				t.Error(tu.Err)
			}
		}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	do(e, func(evs ...model.Event) {
		mail.Put(evs...)
		time.Sleep(3 * time.Second) // virtual time (synctest): pauses
		synctest.Wait()
	})
	cancel()
	check(t, <-done)
}

// byService holds the keys of each Service's objects.
type byService map[model.ServiceKey]map[dataplane.Key]bool

// several reports whether a key belongs to several Services.
func (b byService) several(k dataplane.Key) bool {
	n := 0
	for _, of := range b {
		if of[k] {
			n++
		}
	}
	return n > 1
}

// has reports whether a Service had an object with the family and ID of k, of any kind: an object that forwards and one that rejects differ in kind.
func (b byService) has(s model.ServiceKey, k dataplane.Key) bool {
	for o := range b[s] {
		if o.Family == k.Family && o.ID == k.ID {
			return true
		}
	}
	return false
}

// wanted returns the desired objects of an agent, by Service.
func wanted(t *testing.T, e *engine.Engine) byService {
	out := byService{}
	check(t, e.Inspect(t.Context(), func(v engine.View) {
		for i := range keys {
			out[key(i)] = map[dataplane.Key]bool{}
			written, pending := v.Objects(key(i))
			for _, o := range append(written, pending...) {
				out[key(i)][o.Key] = true
			}
		}
	}))
	return out
}

// fresh returns the objects that an agent writes from these events only, on an empty kernel, and their owners.
func fresh(t *testing.T, d dataplane.Driver, oneList bool, evs []model.Event) (holds map[dataplane.Key]string, owned byService) {
	p := paper{d, map[dataplane.Key]string{}}
	onPaper(t, p, oneList, func(e *engine.Engine, put func(...model.Event)) {
		put(append(evs, model.Event{Synced: "test"})...)
		owned = wanted(t, e)
	})
	return p.plain(), owned
}

// TestListedSource covers a source that can read only some of its objects. The kernel objects that an earlier run left for the unreadable ones stay.
// The agent follows all that it can read, including removals. When the rest becomes readable, the state is the same as after any start.
func TestListedSource(t *testing.T) {
	for name, driver := range map[string]func() dataplane.Driver{
		"nftables":  func() dataplane.Driver { return nftables.New(nftables.Params{}) },
		"iptables":  func() dataplane.Driver { return iptables.New(iptables.Params{}) },
		"ipvs":      func() dataplane.Driver { return ipvs.New(ipvs.Params{Drain: time.Minute}) },
		"userspace": func() dataplane.Driver { return userspace.New(userspace.Params{Plan: addressplan.Plan{Own: true}}) },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds(20) {
				synctest.Test(t, func(t *testing.T) { (&listed{t: t, d: driver(), oneList: name == "ipvs"}).check(seed) })
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// listed is one history of a source that can read only some of its objects.
type listed struct {
	t       *testing.T
	d       dataplane.Driver
	oneList bool
	w       *world

	services, slices map[int]bool              // the objects that cannot be read
	left             map[dataplane.Key]string  // the objects that the earlier run left
	owned            byService                 // the owners of left
	sliced           model.ServiceKey          // the Service, in the earlier run, of the slice that cannot be read
	doubtful         map[model.ServiceKey]bool // Services that may have endpoints, or keys, in the unreadable objects
	seen             map[dataplane.Key]bool    // the keys that this run has desired so far
}

func (l *listed) check(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 9))
	l.w, l.seen = newWorld(r), map[dataplane.Key]bool{}
	for i := range keys {
		l.w.services[i], l.w.slices[i] = l.w.randomService(i), l.w.randomSlice(i)
	}
	p := paper{l.d, map[dataplane.Key]string{}}
	onPaper(l.t, p, l.oneList, func(e *engine.Engine, put func(...model.Event)) {
		put(l.w.all()...)
		l.owned = wanted(l.t, e)
	})
	l.left = p.plain()
	l.services, l.slices, l.doubtful = map[int]bool{}, map[int]bool{}, map[model.ServiceKey]bool{}
	for range 3 {
		l.services[r.IntN(keys)] = true
	}
	unread := r.IntN(keys)
	l.sliced = l.w.slices[unread].Service
	l.slices[unread], l.doubtful[l.sliced] = true, true
	onPaper(l.t, p, l.oneList, func(e *engine.Engine, put func(...model.Event)) {
		put(append(l.readable(), model.Event{Listed: "test"})...)
		l.compare(p, e, "at the start")
		for step := range 12 {
			node, host, cidrs := l.w.node, l.w.host, l.w.cidrs
			ev := l.w.change()
			l.w.node, l.w.host, l.w.cidrs = node, host, cidrs // the change of a Node or host affects keys that belong to no Service
			if ev.Service == nil && ev.Slice == nil || l.unread(&ev) {
				continue
			}
			put(ev)
			l.compare(p, e, step)
		}
		put(append(l.w.again(), model.Event{Synced: "test"})...)
		time.Sleep(100 * time.Hour) // virtual time (synctest): lingering objects expire
		synctest.Wait()
	})
	if l.t.Failed() {
		return
	}
	all := slices.DeleteFunc(l.w.all(), func(e model.Event) bool { return e.Synced != "" })
	end := p.plain()
	want, _ := fresh(l.t, l.d, l.oneList, all)
	for k := range union(end, want) {
		if end[k] != want[k] {
			l.t.Errorf("once all can be read: %s is %q, not %q", l.d.KeyString(k), end[k], want[k])
		}
	}
}

func union(a, b map[dataplane.Key]string) map[dataplane.Key]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func (l *listed) unread(e *model.Event) bool {
	return e.Service != nil && l.services[int(e.Service.Key.Name[1]-'0')] || e.Slice != nil && l.slices[int(e.Slice.Key.Name[1]-'0')]
}

// readable returns the objects that can be read, in their current state.
func (l *listed) readable() []model.Event {
	return slices.DeleteFunc(l.w.all(), func(e model.Event) bool { return e.Synced != "" || l.unread(&e) })
}

// wasRead reports whether this run has desired a key, or the whole of which it is a part.
func (l *listed) wasRead(k dataplane.Key) bool {
	if d, has := l.d.(dataplane.Parter); has {
		if whole, is := d.Part(k); is && l.seen[whole] {
			return true
		}
	}
	return l.seen[k]
}

// compare compares the kernel's contents with the readable objects and with what the earlier run left.
func (l *listed) compare(p paper, e *engine.Engine, at any) {
	l.t.Helper()
	now := p.plain()
	want, owners := fresh(l.t, l.d, l.oneList, l.readable())
	for _, of := range wanted(l.t, e) {
		for k := range of {
			l.seen[k] = true
		}
	}
	for i := range l.services {
		for k := range l.owned[key(i)] {
			if _, is := want[k]; !is && (!l.wasRead(k) || l.d.Shared(k) || l.owned.several(k)) && now[k] != l.left[k] {
				l.t.Errorf("%v: %s, left of %v, which cannot be read, is %q, was %q", at, l.d.KeyString(k), key(i), now[k], l.left[k])
			}
		}
	}
	for k, v := range now {
		if _, is := want[k]; !is && l.wasRead(k) && !l.d.Shared(k) && l.d.Linger(k) == 0 {
			l.t.Errorf("%v: %s, which was read and is gone, is %q", at, l.d.KeyString(k), v)
		}
	}
	for service, of := range owners {
		for k := range of {
			for i := range l.services {
				l.doubtful[service] = l.doubtful[service] || l.owned.has(key(i), k) && !l.d.Shared(k)
			}
			// It took over a key of the Service whose endpoints cannot be read. These may still be the contents of the key.
			l.doubtful[service] = l.doubtful[service] || l.owned.has(l.sliced, k) && !l.d.Shared(k)
		}
		for k := range of {
			if now[k] != want[k] && (!l.doubtful[service] || now[k] != l.left[k] && now[k] != "") {
				l.t.Errorf("%v: %s of %v is %q, wanted %q, was left as %q", at, l.d.KeyString(k), service, now[k], want[k], l.left[k])
			}
		}
	}
}

// seeds returns the number of histories of a test: short, or FAIRLEAD_PROPERTY_SEEDS for a longer manual run.
func seeds(short uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv("FAIRLEAD_PROPERTY_SEEDS"), 10, 64); err == nil {
		return n
	}
	return short
}
