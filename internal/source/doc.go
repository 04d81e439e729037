// Package source is the folder of what turns the outside into model.Event:
// file reads a folder of manifests, k8s watches an API server, and both leave
// the reading of Kubernetes objects to convert. It holds no code itself.
package source
