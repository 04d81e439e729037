package testcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// Create creates the objects of a file of manifests, as kubectl create --validate=strict does: a field that is
// unknown to the server is an error.
func (c *Cluster) Create(ctx context.Context, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(c.AdminREST)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Admin.Discovery()))
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := docs.Decode(o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		kind := o.GroupVersionKind()
		m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("%s: %s %s: %w", path, kind.Kind, o.GetName(), err)
		}
		to := client.Resource(m.Resource).Namespace(o.GetNamespace())
		// The namespace kube-system appears a moment after the server reports that it is ready.
		err = poll(ctx, func() error {
			_, err := to.Create(ctx, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
				return &fatal{err}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: create %s %s: %w", path, kind.Kind, o.GetName(), err)
		}
	}
}
