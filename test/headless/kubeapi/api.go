// Package kubeapi is the smallest Kubernetes API that a watcher of Services,
// EndpointSlices and Namespaces can use: list and watch, no storage, no authentication.
// The experiment and the conformance table publish objects through it, so that CoreDNS
// and Fairlead receive a name at the same instant, without the controllers' own delays.
// Each test owns one API; it is safe for concurrent use.
package kubeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is an object that can be stored.
type Object interface {
	runtime.Object
	metav1.Object
}

// API is one server; an http.Handler.
type API struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]Object // resource → namespace/name
	changed chan struct{}                // closed and replaced at every update
	log     []change
}

type change struct {
	version  int
	resource string
	Type     string `json:"type"`
	Object   Object `json:"object"`
}

// New returns an API without objects.
func New() *API {
	return &API{version: 1, objects: map[string]map[string]Object{}, changed: make(chan struct{})}
}

// Put creates or replaces an object of a resource such as "services". The
// object is kept and must not change afterwards.
func (a *API) Put(resource string, o Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.objects[resource] == nil {
		a.objects[resource] = map[string]Object{}
	}
	key, typ := o.GetNamespace()+"/"+o.GetName(), "ADDED"
	if _, ok := a.objects[resource][key]; ok {
		typ = "MODIFIED"
	}
	a.objects[resource][key] = o
	a.record(resource, typ, o)
}

// Delete removes an object if it exists.
func (a *API) Delete(resource, namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := namespace + "/" + name
	if o, ok := a.objects[resource][key]; ok {
		delete(a.objects[resource], key)
		a.record(resource, "DELETED", o.DeepCopyObject().(Object))
	}
}

func (a *API) record(resource, typ string, o Object) {
	a.version++
	apiVersion, kind := kindOf(resource)
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind)) // a watcher decodes each object by itself
	o.SetResourceVersion(strconv.Itoa(a.version))
	o.SetUID(types.UID(fmt.Sprintf("%s-%s-%s", resource, o.GetNamespace(), o.GetName())))
	a.log = append(a.log, change{a.version, resource, typ, o})
	close(a.changed)
	a.changed = make(chan struct{})
}

func kindOf(resource string) (apiVersion, kind string) {
	switch resource {
	case "services":
		return "v1", "Service"
	case "namespaces":
		return "v1", "Namespace"
	case "nodes":
		return "v1", "Node"
	case "endpointslices":
		return "discovery.k8s.io/v1", "EndpointSlice"
	case "servicecidrs":
		return "networking.k8s.io/v1", "ServiceCIDR"
	}
	return "v1", "Status"
}

// ServeHTTP implements list and watch of whole resources. Selectors are ignored.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	query := r.URL.Query()
	if _, kind := kindOf(resource); kind == "Status" || r.Method != http.MethodGet {
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case query.Get("sendInitialEvents") == "true": // the client then falls back to list and watch
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"sendInitialEvents is forbidden"}`)
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		a.watch(w, r, resource)
	default:
		a.list(w, resource)
	}
}

func (a *API) list(w http.ResponseWriter, resource string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	apiVersion, kind := kindOf(resource)
	items := []Object{}
	for _, o := range a.objects[resource] {
		items = append(items, o)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": apiVersion, "kind": kind + "List",
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version)}, "items": items,
	})
}

func (a *API) watch(w http.ResponseWriter, r *http.Request, resource string) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	flusher := w.(http.Flusher)
	flusher.Flush()
	enc := json.NewEncoder(w)
	end := time.After(10 * time.Minute)
	for {
		list, changed := a.since(from, resource)
		for _, c := range list {
			if err := enc.Encode(c); err != nil {
				return
			}
			from = c.version
		}
		if len(list) > 0 {
			flusher.Flush()
		}
		select {
		case <-r.Context().Done():
			return
		case <-end:
			return
		case <-changed:
		}
	}
}

func (a *API) since(version int, resource string) (list []change, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := sort.Search(len(a.log), func(i int) bool { return a.log[i].version > version })
	for _, c := range a.log[first:] {
		if c.resource == resource {
			list = append(list, c)
		}
	}
	return list, a.changed
}
