package k8s

import (
	"hash/maphash"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// Any difference between two objects must change the digest, and Equal: an update
// of a field that is not included would be lost.
func TestDigestSeesEveryField(t *testing.T) {
	d := digester{maphash.MakeSeed()}
	service := &model.Service{
		ClusterIPs: make([]netip.Addr, 1), ExternalIPs: make([]netip.Addr, 1), LoadBalancerIPs: make([]netip.Addr, 1),
		SourceRanges: make([]netip.Prefix, 1), Ports: make([]model.ServicePort, 1),
		Extras: model.Extras{NodePortRanges: make([]netip.Prefix, 1), DNSPark: new(time.Duration)},
	}
	seen := compareEach(t, service, func(s *model.Service) uint64 { return d.service(s, nil) }, (*model.Service).Equal)
	slice := &model.Slice{
		Ports:     make([]model.SlicePort, 1),
		Endpoints: []model.Endpoint{{Hints: &model.Hints{Zones: make([]string, 1), Nodes: make([]string, 1)}}},
	}
	// The key of a slice is what its digest is filed under, and need not be in it.
	digest := func(s *model.Slice) uint64 { return d.slice(s, []model.Problem{{Object: s.Key.String()}}) }
	seen += compareEach(t, slice, digest, (*model.Slice).Equal)
	node := &model.Node{Addrs: make([]netip.Addr, 1), PodCIDRs: make([]netip.Prefix, 1)}
	seen += compareEach(t, node, func(n *model.Node) uint64 { return d.node(n, nil) }, (*model.Node).Equal)
	if seen < 45 {
		t.Errorf("only %d fields were changed", seen)
	}
}

func TestDigestSeesProblems(t *testing.T) {
	d := digester{maphash.MakeSeed()}
	problems := []model.Problem{{Reason: "x"}}
	if d.service(&model.Service{}, nil) == d.service(&model.Service{}, problems) || d.slice(nil, nil) == d.slice(nil, problems) ||
		d.node(&model.Node{}, nil) == d.node(&model.Node{}, problems) || d.prefixes(nil, nil) == d.prefixes(nil, problems) {
		t.Error("a new problem of an object is not told")
	}
}

// compareEach changes each field of *v in turn, at any depth, and checks that both
// functions detect the difference. It returns the number of fields.
func compareEach[V any](t *testing.T, v *V, digest func(*V) uint64, equal func(a, b *V) bool) int {
	t.Helper()
	before, n := digest(v), 0
	changeEach(t, reflect.ValueOf(v).Elem(), reflect.TypeFor[V]().Name(), func(path string, changed bool) {
		if !changed {
			if digest(v) != before {
				t.Errorf("%s: put back, the digest is another", path)
			}
			return
		}
		n++
		if digest(v) == before {
			t.Errorf("%s is not in the digest", path)
		}
	})
	// The same for Equal, against an object that is built alike.
	changeEach(t, reflect.ValueOf(v).Elem(), reflect.TypeFor[V]().Name(), func(path string, changed bool) {
		if changed && equal(v, deepCopy(v, path)) {
			t.Errorf("%s is not compared by Equal", path)
		}
	})
	return n
}

// deepCopy returns a copy of v in the state before the field at path was changed:
// that field is zero.
func deepCopy[V any](v *V, path string) *V {
	out := reflect.New(reflect.TypeFor[V]())
	copyInto(out.Elem(), reflect.ValueOf(v).Elem(), reflect.TypeFor[V]().Name(), path)
	return out.Interface().(*V)
}

func copyInto(to, from reflect.Value, at, except string) {
	switch {
	case at == except: // stays zero
	case from.Kind() == reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			copyInto(to.Elem(), from.Elem(), at, except)
		}
	case from.Kind() == reflect.Slice:
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyInto(to.Index(i), from.Index(i), at, except)
		}
	case from.Kind() == reflect.Struct && from.Type().PkgPath() == reflect.TypeFor[model.Service]().PkgPath():
		for i := range from.NumField() {
			copyInto(to.Field(i), from.Field(i), at+"."+from.Type().Field(i).Name, except)
		}
	default:
		to.Set(from)
	}
}

// changeEach sets each field below v to something that is not zero, calls check,
// puts it back, and calls check again.
func changeEach(t *testing.T, v reflect.Value, at string, check func(path string, changed bool)) {
	t.Helper()
	switch {
	case v.Kind() == reflect.Pointer:
		changeEach(t, v.Elem(), at, check)
		return
	case v.Kind() == reflect.Slice:
		changeEach(t, v.Index(0), at, check)
		return
	case v.Kind() == reflect.Struct && v.Type().PkgPath() == reflect.TypeFor[model.Service]().PkgPath():
		for i := range v.NumField() {
			changeEach(t, v.Field(i), at+"."+v.Type().Field(i).Name, check)
		}
		return
	}
	var other any
	switch v.Interface().(type) {
	case netip.Addr:
		other = netip.MustParseAddr("192.0.2.1")
	case netip.Prefix:
		other = netip.MustParsePrefix("192.0.2.0/24")
	default:
		switch v.Kind() {
		case reflect.String:
			other = "x"
		case reflect.Bool:
			other = true
		default:
			other = 1
		}
	}
	v.Set(reflect.ValueOf(other).Convert(v.Type()))
	check(at, true)
	v.SetZero()
	check(at, false)
}
