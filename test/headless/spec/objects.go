package spec

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/source/convert"
	"github.com/fairlead/fairlead/test/headless/kubeapi"
)

//go:embed objects.yaml
var objects []byte

// Load puts the table's objects into the API, and returns the events that a source
// would make of them.
func Load(api *kubeapi.API) ([]model.Event, error) {
	var events []model.Event
	c := convert.New()
	dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(objects), 4096)
	for {
		var raw json.RawMessage
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
			return events, nil
		} else if err != nil {
			return nil, fmt.Errorf("read objects: %w", err)
		}
		o, resource, err := decode(raw)
		if err != nil {
			return nil, err
		}
		if ev := Event(c, o); ev != nil {
			events = append(events, *ev)
		}
		api.Put(resource, o)
	}
}

func decode(raw []byte) (kubeapi.Object, string, error) {
	var head struct{ Kind string }
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, "", err
	}
	var o kubeapi.Object
	var resource string
	switch head.Kind {
	case "Service":
		o, resource = &corev1.Service{}, "services"
	case "EndpointSlice":
		o, resource = &discoveryv1.EndpointSlice{}, "endpointslices"
	case "Namespace":
		o, resource = &corev1.Namespace{}, "namespaces"
	default:
		return nil, "", fmt.Errorf("object of kind %q is not known", head.Kind)
	}
	return o, resource, json.Unmarshal(raw, o)
}

// Event returns the event that a source sends for an object, nil if it sends none.
func Event(c *convert.Converter, o kubeapi.Object) *model.Event {
	switch o := o.(type) {
	case *corev1.Service:
		s, _ := c.Service(o)
		return &model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: s.Key, Value: s}}
	case *discoveryv1.EndpointSlice:
		s, _ := c.Slice(o)
		return &model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: s.Key, Value: s}}
	}
	return nil
}
