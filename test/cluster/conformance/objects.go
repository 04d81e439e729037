package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// objects keeps the API server in sync with a folder of manifests.
type objects struct {
	api   kubernetes.Interface
	files map[string][]key
	made  []key // all created objects, oldest first
}

// key identifies an object; kind is node, service or slice.
type key struct{ kind, namespace, name string }

func (k key) String() string { return k.kind + " " + k.namespace + "/" + k.name }

func newObjects(api kubernetes.Interface) *objects {
	return &objects{api: api, files: map[string][]key{}}
}

// apply creates or updates the objects of one file, and deletes those that only an earlier content of the file had.
func (o *objects) apply(ctx context.Context, f kit.File) error {
	objs, err := decode(f)
	if err != nil {
		return kit.NotApplicable(fmt.Sprintf("%s is no object of an API server: %v", f.Name, err))
	}
	old := o.files[f.Name]
	o.files[f.Name] = nil
	for _, obj := range objs {
		o.files[f.Name] = append(o.files[f.Name], keyOf(obj))
	}
	err = o.put(ctx, objs)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return kit.NotApplicable(fmt.Sprintf("the API server refuses it: %v", err))
	}
	if err != nil {
		return err
	}
	return o.drop(ctx, old)
}

// remove deletes the objects of one file.
func (o *objects) remove(ctx context.Context, name string) error {
	old, ok := o.files[name]
	if !ok {
		return fmt.Errorf("remove file %s: it was not applied", name)
	}
	delete(o.files, name)
	return o.drop(ctx, old)
}

// drop deletes those of the objects that no file contains any more.
func (o *objects) drop(ctx context.Context, old []key) error {
	for _, k := range old {
		held := false
		for _, keys := range o.files {
			held = held || slices.Contains(keys, k)
		}
		if !held {
			if err := o.delete(ctx, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// clear deletes all objects that were created.
func (o *objects) clear(ctx context.Context) error {
	var errs []error
	for _, k := range slices.Backward(slices.Clone(o.made)) {
		errs = append(errs, o.delete(ctx, k))
	}
	return errors.Join(errs...)
}

// put creates or replaces objects.
func (o *objects) put(ctx context.Context, objs []runtime.Object) error {
	for _, obj := range objs {
		k := keyOf(obj)
		if !slices.Contains(o.made, k) {
			o.made = append(o.made, k)
		}
		if err := o.write(ctx, k, obj); err != nil {
			return fmt.Errorf("write %s: %w", k, err)
		}
	}
	return nil
}

// write updates or creates one object (in this order: creating a Service that exists fails because its address is allocated). If a
// field cannot be changed in place, it deletes and recreates the object, as a user would have to.
func (o *objects) write(ctx context.Context, k key, obj runtime.Object) error {
	err := o.update(ctx, k, obj)
	if apierrors.IsNotFound(err) {
		return o.create(ctx, k, obj)
	}
	if !apierrors.IsInvalid(err) {
		return err
	}
	if err := o.delete(ctx, k); err != nil {
		return err
	}
	o.made = append(o.made, k)
	return o.create(ctx, k, obj)
}

func (o *objects) create(ctx context.Context, k key, obj runtime.Object) (err error) {
	switch obj := obj.DeepCopyObject().(type) {
	case *corev1.Node:
		obj.ResourceVersion = ""
		if _, err = o.api.CoreV1().Nodes().Create(ctx, obj, metav1.CreateOptions{}); err == nil {
			err = o.nodeStatus(ctx, obj)
		}
	case *corev1.Service:
		if err = o.namespace(ctx, k.namespace); err != nil {
			return err
		}
		if _, err = o.api.CoreV1().Services(k.namespace).Create(ctx, obj, metav1.CreateOptions{}); err == nil {
			err = o.serviceStatus(ctx, obj)
		}
	case *discoveryv1.EndpointSlice:
		if err = o.namespace(ctx, k.namespace); err != nil {
			return err
		}
		_, err = o.api.DiscoveryV1().EndpointSlices(k.namespace).Create(ctx, obj, metav1.CreateOptions{})
	}
	return err
}

func (o *objects) update(ctx context.Context, k key, obj runtime.Object) error {
	switch obj := obj.DeepCopyObject().(type) {
	case *corev1.Node:
		live, err := o.api.CoreV1().Nodes().Get(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		obj.ResourceVersion = live.ResourceVersion
		if _, err = o.api.CoreV1().Nodes().Update(ctx, obj, metav1.UpdateOptions{}); err != nil {
			return err
		}
		return o.nodeStatus(ctx, obj)
	case *corev1.Service:
		live, err := o.api.CoreV1().Services(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		obj.ResourceVersion = live.ResourceVersion
		if _, err = o.api.CoreV1().Services(k.namespace).Update(ctx, obj, metav1.UpdateOptions{}); err != nil {
			return err
		}
		return o.serviceStatus(ctx, obj)
	case *discoveryv1.EndpointSlice:
		live, err := o.api.DiscoveryV1().EndpointSlices(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		obj.ResourceVersion = live.ResourceVersion
		_, err = o.api.DiscoveryV1().EndpointSlices(k.namespace).Update(ctx, obj, metav1.UpdateOptions{})
		return err
	}
	return nil
}

// nodeStatus and serviceStatus write the fields that only the status endpoint accepts.
func (o *objects) nodeStatus(ctx context.Context, want *corev1.Node) error {
	live, err := o.api.CoreV1().Nodes().Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	live.Status = want.Status
	_, err = o.api.CoreV1().Nodes().UpdateStatus(ctx, live, metav1.UpdateOptions{})
	return err
}

func (o *objects) serviceStatus(ctx context.Context, want *corev1.Service) error {
	if want.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil // the server clears it by itself
	}
	live, err := o.api.CoreV1().Services(want.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	live.Status = want.Status
	_, err = o.api.CoreV1().Services(want.Namespace).UpdateStatus(ctx, live, metav1.UpdateOptions{})
	return err
}

func (o *objects) delete(ctx context.Context, k key) error {
	o.made = slices.DeleteFunc(o.made, func(m key) bool { return m == k })
	var err error
	switch k.kind {
	case "node":
		err = o.api.CoreV1().Nodes().Delete(ctx, k.name, metav1.DeleteOptions{})
	case "service":
		err = o.api.CoreV1().Services(k.namespace).Delete(ctx, k.name, metav1.DeleteOptions{})
	case "slice":
		err = o.api.DiscoveryV1().EndpointSlices(k.namespace).Delete(ctx, k.name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) { // does not exist: the server rejected it
		return fmt.Errorf("delete %s: %w", k, err)
	}
	return nil
}

// namespace creates a namespace, which stays for the life of the API server.
func (o *objects) namespace(ctx context.Context, name string) error {
	_, err := o.api.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = o.api.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	return err
}

func keyOf(obj runtime.Object) key {
	switch obj := obj.(type) {
	case *corev1.Node:
		return key{"node", "", obj.Name}
	case *corev1.Service:
		return key{"service", obj.Namespace, obj.Name}
	case *discoveryv1.EndpointSlice:
		return key{"slice", obj.Namespace, obj.Name}
	}
	return key{}
}

// decode reads the documents of a file. Objects without a namespace get "default", as with kubectl.
func decode(f kit.File) ([]runtime.Object, error) {
	docs := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(f.Data)))
	var out []runtime.Object
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if len(strings.TrimSpace(string(doc))) == 0 {
			continue
		}
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(doc, nil, nil)
		if err != nil {
			return nil, err
		}
		if keyOf(obj) == (key{}) {
			return nil, fmt.Errorf("unexpected kind %T", obj)
		}
		if m := obj.(metav1.Object); m.GetNamespace() == "" && keyOf(obj).kind != "node" {
			m.SetNamespace(corev1.NamespaceDefault)
		}
		out = append(out, obj)
	}
}
