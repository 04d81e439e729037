// Package k8s is the source that watches a Kubernetes API server with client-go's
// reflectors. Lists and watches, bookmarks, streaming lists, and their recovery are
// implemented by client-go.
//
// It caches no objects. Each object that a watch returns is converted at once and
// leaves through the sink. Of each object only its name, a digest and, for
// Services, the UID are kept. They suffice to find deletions after a new list and
// to drop updates that change nothing for a proxy. app starts Run and Recorder.Run
// in goroutines of their own. The sink is called concurrently from the goroutines
// of the reflectors, one for each resource.
//
// The path of a change: watch.go records whether the server answers, the reflector
// calls store.go, whose converters are in resources.go.
package k8s
