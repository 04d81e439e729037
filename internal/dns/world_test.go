package dns

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
)

// storeWorld changes a few Services and slices at random.
type storeWorld struct {
	store    *Store
	random   *rand.Rand
	services map[model.ServiceKey]*model.Service
	slices   map[model.SliceKey]*model.Slice
}

func newStoreWorld(t *testing.T) *storeWorld {
	seed := uint64(rand.Int64())
	t.Logf("seed %d", seed)
	return &storeWorld{store: NewStore(StoreConfig{}), random: rand.New(rand.NewPCG(seed, 1)),
		services: map[model.ServiceKey]*model.Service{}, slices: map[model.SliceKey]*model.Slice{}}
}

func (w *storeWorld) key() model.ServiceKey {
	return model.ServiceKey{Namespace: fmt.Sprint("ns", w.random.IntN(2)), Name: fmt.Sprint("svc", w.random.IntN(2))}
}

func (w *storeWorld) change(int) {
	if w.random.IntN(3) == 0 {
		w.changeService()
		return
	}
	svc := w.key()
	key := model.SliceKey{Namespace: svc.Namespace, Name: fmt.Sprint("slice", w.random.IntN(4))}
	ev := model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: key}}
	delete(w.slices, key)
	if w.random.IntN(5) > 0 {
		sl := &model.Slice{Key: key, Service: svc, Family: model.IPv4, Headless: true}
		for range w.random.IntN(30) {
			host := ""
			if w.random.IntN(2) == 0 {
				host = fmt.Sprint("h", w.random.IntN(4))
			}
			sl.Endpoints = append(sl.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(w.random.IntN(40))}), Hostname: host, Ready: w.random.IntN(3) > 0})
		}
		ev.Slice.Value, w.slices[key] = sl, sl
	}
	w.store.Apply([]model.Event{ev})
}

func (w *storeWorld) changeService() {
	key := w.key()
	ev := model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: key}}
	delete(w.services, key)
	if n := w.random.IntN(5); n > 0 {
		svc := &model.Service{Key: key}
		switch n {
		case 1:
			svc.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(w.random.IntN(3))})}
		case 2:
			svc.ExternalName = "www.example.org"
		default:
			svc.Headless = true
		}
		ev.Service.Value, w.services[key] = svc, svc
	}
	w.store.Apply([]model.Event{ev})
}

func (w *storeWorld) events() (list []model.Event) {
	for key, sl := range w.slices {
		list = append(list, model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: key, Value: sl}})
	}
	for key, svc := range w.services {
		list = append(list, model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: key, Value: svc}})
	}
	return list
}

func (w *storeWorld) clear() {
	for key := range w.slices {
		w.store.Apply([]model.Event{{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: key}}})
	}
	for key := range w.services {
		w.store.Apply([]model.Event{{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: key}}})
	}
}
