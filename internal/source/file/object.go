package file

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/internal/model"
)

// kind is the kind of a manifest that this source uses.
type kind uint8

const (
	nodeKind kind = iota + 1
	cidrKind
	serviceKind
	sliceKind
)

// id identifies an object of the folder.
type id struct {
	kind            kind
	namespace, name string
}

// String returns "Service default/web".
func (k id) String() string {
	name := k.name
	if k.namespace != "" {
		name = k.namespace + "/" + k.name
	}
	return [...]string{"", "Node", "ServiceCIDR", "Service", "EndpointSlice"}[k.kind] + " " + name
}

// invalid returns the field of the name that the API server would refuse, and the reason; "" if the name is valid. Names of Services must be DNS
// labels (RFC 1123), which the API server allows since RelaxedServiceNameValidation (KEP-5311), and so must namespaces. Names of all other kinds must
// be DNS subdomains.
func (k id) invalid() string {
	check, want := validation.IsDNS1123Subdomain, "not a DNS subdomain (lower case letters, digits, '-' and '.', at most 253 characters)"
	const label = "not a DNS label (lower case letters, digits and '-', at most 63 characters)"
	if k.kind == serviceKind {
		check, want = validation.IsDNS1123Label, label
	}
	switch {
	case len(check(k.name)) > 0:
		return fmt.Sprintf("metadata.name: %.300q is %s", k.name, want)
	case k.namespace != "" && len(validation.IsDNS1123Label(k.namespace)) > 0:
		return fmt.Sprintf("metadata.namespace: %.300q is %s", k.namespace, label)
	}
	return ""
}

// compare is the order of delivery: nodes and ranges, on which other objects
// depend, come before Services, and Services before their slices.
func (k id) compare(o id) int {
	if k.kind != o.kind {
		return int(k.kind) - int(o.kind)
	}
	if c := strings.Compare(k.namespace, o.namespace); c != 0 {
		return c
	}
	return strings.Compare(k.name, o.name)
}

// object is one object as a file defines it. It is immutable after it is read, so
// that a document whose text is unchanged yields the same pointer again.
type object struct {
	id id

	// At most one of these is set. All are nil if the object cannot be used at
	// all.
	node    *model.Node
	cidrs   []netip.Prefix
	service *model.Service
	slice   *model.Slice

	problems []model.Problem
	// suspect: a field has the wrong type, so that the object is incomplete. An
	// earlier valid definition of the object is preferred.
	suspect bool
}

// empty reports whether there is nothing to deliver for the object.
func (o *object) empty() bool {
	return o == nil || (o.node == nil && o.service == nil && o.slice == nil && len(o.cidrs) == 0)
}

// same reports whether two objects are the same to every consumer.
func (o *object) same(p *object) bool {
	if o == p {
		return true
	}
	return o != nil && p != nil && o.id == p.id && o.node.Equal(p.node) && slices.Equal(o.cidrs, p.cidrs) &&
		o.service.Equal(p.service) && o.slice.Equal(p.slice)
}

// event returns the event for the object under key k; o is nil if the object is
// gone.
func (k id) event(o *object) model.Event {
	if o == nil {
		o = &object{}
	}
	switch k.kind {
	case nodeKind:
		return model.Event{Node: &model.Keyed[string, model.Node]{Key: k.name, Value: o.node}, Origin: k.String()}
	case serviceKind:
		return model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{
			Key: model.ServiceKey{Namespace: k.namespace, Name: k.name}, Value: o.service,
		}}
	case sliceKind:
		return model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{
			Key: model.SliceKey{Namespace: k.namespace, Name: k.name}, Value: o.slice,
		}}
	}
	return model.Event{}
}
