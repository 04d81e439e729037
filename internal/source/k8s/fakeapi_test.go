package k8s

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
)

// fakeAPI is an HTTP server that lists and watches as an API server does, in
// protobuf, with a history that can be forgotten.
type fakeAPI struct {
	t      *testing.T
	server *httptest.Server
	info   runtime.SerializerInfo
	codecs serializer.CodecFactory

	mu        sync.Mutex
	version   int
	kinds     map[string]*fakeKind
	streaming bool           // knows sendInitialEvents
	token     string         // that is asked for; "" = none
	refuse    map[string]int // resource → HTTP status
	queries   []string       // "services?..." of every list and watch
	posted    []*corev1.Event
	forgotten int // history up to here is gone
	hangUp    chan struct{}
	deaf      bool // closes connections instead of answering

	beforePatch func() // runs before a patch is taken
}

type fakeKind struct {
	gv      schema.GroupVersion
	list    func() runtime.Object
	objects map[string]runtime.Object
	history []fakeEvent
	changed chan struct{} // closed and replaced at each event
}

type fakeEvent struct {
	version int
	kind    watch.EventType
	object  runtime.Object
}

func newFakeAPI(t *testing.T) *fakeAPI {
	codecs := serializer.NewCodecFactory(newScheme())
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), protobuf)
	if !ok {
		t.Fatal("no protobuf")
	}
	f := &fakeAPI{
		t: t, info: info, codecs: codecs, version: 100, streaming: true, refuse: map[string]int{}, hangUp: make(chan struct{}),
		kinds: map[string]*fakeKind{
			"services":       {gv: corev1.SchemeGroupVersion, list: func() runtime.Object { return &corev1.ServiceList{} }},
			"nodes":          {gv: corev1.SchemeGroupVersion, list: func() runtime.Object { return &corev1.NodeList{} }},
			"endpointslices": {gv: discoveryv1.SchemeGroupVersion, list: func() runtime.Object { return &discoveryv1.EndpointSliceList{} }},
			"servicecidrs":   {gv: networkingv1.SchemeGroupVersion, list: func() runtime.Object { return &networkingv1.ServiceCIDRList{} }},
		},
	}
	for _, k := range f.kinds {
		k.objects, k.changed = map[string]runtime.Object{}, make(chan struct{})
	}
	f.server = httptest.NewUnstartedServer(f)
	f.server.EnableHTTP2 = true
	f.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	f.server.StartTLS()
	t.Cleanup(func() {
		f.hangUpAll()
		f.server.Close()
	})
	return f
}

// kubeconfig writes a file for this server; ca "" is the right certificate.
func (f *fakeAPI) kubeconfig(ca, tokenFile string) string {
	f.t.Helper()
	dir := f.t.TempDir()
	if ca == "" {
		ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw}))
	}
	for name, text := range map[string]string{
		"ca.crt": ca,
		"config": fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\n"+
			"clusters: [{name: x, cluster: {server: %q, certificate-authority: ca.crt}}]\n"+
			"users: [{name: x, user: {tokenFile: %q}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n", f.server.URL, tokenFile),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	return filepath.Join(dir, "config")
}

func (f *fakeAPI) do(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// put creates or updates an object; del deletes it.
func (f *fakeAPI) put(resource string, o runtime.Object) { f.happen(resource, watch.Modified, o) }
func (f *fakeAPI) del(resource string, o runtime.Object) { f.happen(resource, watch.Deleted, o) }

func (f *fakeAPI) happen(resource string, kind watch.EventType, o runtime.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.kinds[resource]
	f.version++
	o = o.DeepCopyObject()
	m, err := meta.Accessor(o)
	if err != nil {
		f.t.Fatal(err)
	}
	m.SetResourceVersion(strconv.Itoa(f.version))
	key := m.GetNamespace() + "/" + m.GetName()
	switch {
	case kind == watch.Deleted:
		delete(k.objects, key)
	case k.objects[key] == nil:
		kind = watch.Added
		fallthrough
	default:
		k.objects[key] = o
	}
	k.history = append(k.history, fakeEvent{f.version, kind, o})
	close(k.changed)
	k.changed = make(chan struct{})
}

// forget drops the history: who watches from before gets a 410.
func (f *fakeAPI) forget() { f.do(func() { f.version++; f.forgotten = f.version }) }

// hangUpAll ends all watches, as a server that stops does.
func (f *fakeAPI) hangUpAll() {
	f.do(func() { close(f.hangUp); f.hangUp = make(chan struct{}) })
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	resource := parts[len(parts)-1]
	f.mu.Lock()
	token, refuse, deaf := f.token, f.refuse[resource], f.deaf
	if resource != "events" {
		f.queries = append(f.queries, resource+"?"+r.URL.RawQuery)
	}
	f.mu.Unlock()
	switch {
	case deaf:
		f.server.CloseClientConnections()
	case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
		f.fail(w, apierrors.NewUnauthorized("no"))
	case refuse == http.StatusForbidden:
		f.fail(w, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf("no role")))
	case refuse == http.StatusNotFound:
		f.fail(w, apierrors.NewGenericServerResponse(refuse, "get", schema.GroupResource{Resource: resource}, "", "", 0, true))
	case refuse != 0:
		f.fail(w, apierrors.NewGenericServerResponse(refuse, "get", schema.GroupResource{Resource: resource}, "", "", 0, true))
	case resource == "events":
		f.takeEvent(w, r)
	case r.Method == http.MethodPatch:
		f.patchTaints(w, r, "/"+resource)
	case r.URL.Query().Get("watch") != "":
		f.watch(w, r, f.kinds[resource])
	default:
		f.list(w, r, f.kinds[resource])
	}
}

func (f *fakeAPI) fail(w http.ResponseWriter, err *apierrors.StatusError) {
	f.answer(w, int(err.ErrStatus.Code), schema.GroupVersion{Version: "v1"}, &err.ErrStatus)
}

func (f *fakeAPI) answer(w http.ResponseWriter, code int, gv schema.GroupVersion, o runtime.Object) {
	w.Header().Set("Content-Type", protobuf)
	w.WriteHeader(code)
	if err := f.codecs.EncoderForVersion(f.info.Serializer, gv).Encode(o, w); err != nil {
		f.t.Error(err)
	}
}

func (f *fakeAPI) takeEvent(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	o, err := runtime.Decode(f.codecs.UniversalDeserializer(), body)
	e, ok := o.(*corev1.Event)
	if err != nil || !ok {
		f.t.Errorf("posted %T: %v", o, err)
		return
	}
	taken := false
	f.do(func() {
		taken = slices.ContainsFunc(f.posted, func(p *corev1.Event) bool { return p.Name == e.Name })
		f.posted = append(f.posted, e)
	})
	if taken {
		f.fail(w, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, e.Name))
		return
	}
	f.answer(w, http.StatusCreated, corev1.SchemeGroupVersion, e)
}

// patchTaints takes a merge patch of a Node's taints, if it is of the Node's version.
func (f *fakeAPI) patchTaints(w http.ResponseWriter, r *http.Request, key string) {
	var patch struct {
		Metadata struct{ ResourceVersion string }
		Spec     struct{ Taints []corev1.Taint }
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		f.t.Errorf("a patch of %s: %v", r.Header.Get("Content-Type"), err)
	}
	f.mu.Lock()
	before := f.beforePatch
	f.mu.Unlock()
	if before != nil {
		before()
	}
	f.mu.Lock()
	node := f.kinds["nodes"].objects[key].(*corev1.Node).DeepCopy()
	f.mu.Unlock()
	if node.ResourceVersion != patch.Metadata.ResourceVersion {
		f.fail(w, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, node.Name, fmt.Errorf("it has changed")))
		return
	}
	node.Spec.Taints = patch.Spec.Taints
	f.put("nodes", node)
	f.answer(w, http.StatusOK, corev1.SchemeGroupVersion, node)
}

func (f *fakeAPI) list(w http.ResponseWriter, r *http.Request, k *fakeKind) {
	f.mu.Lock()
	list := k.list()
	var items []runtime.Object
	for _, key := range slices.Sorted(maps.Keys(k.objects)) {
		items = append(items, k.objects[key])
	}
	version := strconv.Itoa(f.version)
	ahead := f.isAhead(r)
	f.mu.Unlock()
	if ahead {
		f.fail(w, tooLarge())
		return
	}
	m, err := meta.ListAccessor(list)
	if err == nil {
		m.SetResourceVersion(version)
		if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && limit < len(items) {
			rest := int64(len(items) - limit)
			m.SetRemainingItemCount(&rest)
			m.SetContinue("more")
			items = items[:limit]
		}
		err = meta.SetList(list, items)
	}
	if err != nil {
		f.t.Error(err)
		return
	}
	f.answer(w, http.StatusOK, k.gv, list)
}

// isAhead reports whether a request asks for what is at least of a version that is yet to come. A plain watch from there is
// accepted. f.mu is held.
func (f *fakeAPI) isAhead(r *http.Request) bool {
	version, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	return version > f.version
}

func tooLarge() *apierrors.StatusError {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// watch streams what happened since a version, and before it, if asked to, what
// there is.
func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, k *fakeKind) {
	query := r.URL.Query()
	since, _ := strconv.Atoi(query.Get("resourceVersion"))
	initial := query.Get("sendInitialEvents") == "true"
	f.mu.Lock()
	streams, forgotten, hangUp, ahead := f.streaming, f.forgotten, f.hangUp, initial && f.isAhead(r)
	f.mu.Unlock()
	if ahead {
		f.fail(w, tooLarge())
		return
	}
	if initial && !streams {
		f.fail(w, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
		return
	}
	w.Header().Set("Content-Type", protobuf+";stream=watch")
	w.WriteHeader(http.StatusOK)
	encoder := streaming.NewEncoder(f.info.StreamSerializer.Framer.NewFrameWriter(w),
		f.codecs.EncoderForVersion(f.info.StreamSerializer.Serializer, schema.GroupVersion{Version: "v1"}))
	send := func(kind watch.EventType, gv schema.GroupVersion, o runtime.Object) {
		raw, err := runtime.Encode(f.codecs.EncoderForVersion(f.info.Serializer, gv), o)
		if err != nil {
			f.t.Error(err)
		}
		_ = encoder.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}})
		w.(http.Flusher).Flush()
	}
	if since != 0 && since < forgotten && !initial {
		status := apierrors.NewResourceExpired("too old").ErrStatus
		send(watch.Error, schema.GroupVersion{Version: "v1"}, &status)
		return
	}
	w.(http.Flusher).Flush()
	if initial {
		since = f.sendInitial(k, func(kind watch.EventType, o runtime.Object) { send(kind, k.gv, o) })
	}
	for {
		f.mu.Lock()
		var events []fakeEvent
		for _, e := range k.history {
			if e.version > since {
				events = append(events, e)
				since = e.version
			}
		}
		changed := k.changed
		f.mu.Unlock()
		for _, e := range events {
			send(e.kind, k.gv, e.object)
		}
		select {
		case <-changed:
		case <-hangUp:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (f *fakeAPI) sendInitial(k *fakeKind, send func(watch.EventType, runtime.Object)) (version int) {
	f.mu.Lock()
	objects := slices.Collect(maps.Values(k.objects))
	version = f.version
	f.mu.Unlock()
	for _, o := range objects {
		send(watch.Added, o)
	}
	list := k.list()
	kind := strings.TrimSuffix(fmt.Sprintf("%T", list)[strings.LastIndex(fmt.Sprintf("%T", list), ".")+1:], "List")
	end, err := newScheme().New(k.gv.WithKind(kind))
	if err != nil {
		f.t.Error(err)
		return version
	}
	m, _ := meta.Accessor(end)
	m.SetResourceVersion(strconv.Itoa(version))
	m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	send(watch.Bookmark, end)
	return version
}
