// Package source is the parent folder of the sources, which convert external state
// to model.Event: file reads a folder of manifests, k8s watches an API server, and
// both use convert to read Kubernetes objects. It holds no code itself.
package source
