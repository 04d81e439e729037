// Package convert converts Kubernetes objects to model values. A bad field is left
// out and reported as one model.Problem, which names the object and the field. The
// rest of the object is used.
//
// It owns two small tables, of strings and of hints, so that a node's name is
// stored once and not once per endpoint. The sources call it from the goroutines of
// their watches. A Converter is safe for concurrent use. Its results are owned by
// the caller and keep nothing of the Kubernetes object but strings.
package convert
