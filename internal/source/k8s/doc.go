// Package k8s is the source that watches a Kubernetes API server, with
// client-go's reflectors: lists and watches, bookmarks, streaming lists, and
// their recovery are client-go's.
//
// It owns no objects. What a watch brings is converted at once and leaves
// through the sink; of each object only its name, a digest and, for Services, the
// UID are kept, which is what it takes to find deletions behind a new list and to
// drop updates that change nothing for a proxy. app starts Run and Recorder.Run
// in goroutines of their own; the sink is called from the goroutines of the
// reflectors, one for each resource, at the same time.
//
// The way of a change: watch.go notes whether the server answers, the reflector
// calls store.go, whose converters are in resources.go.
package k8s
