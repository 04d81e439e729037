// Package source is the parent folder of the sources, which convert external state
// to model.Event: file reads a folder of manifests, k8s watches an API server, and
// both use convert to read Kubernetes objects. exclusions reads the addresses that are never
// accelerated. Package node, the source of this host's addresses, is elsewhere. The folder
// holds no code itself.
package source
