// Package convert reads Kubernetes objects into model values. One bad field
// costs that field and gives one model.Problem that names object and field; the
// rest of the object is used.
//
// It owns two small tables, of strings and of hints, so that a node's name is in
// memory once and not once an endpoint. The sources call it, from the goroutines
// of their watches: a Converter is safe for concurrent use, its results belong
// to the caller and keep nothing of the Kubernetes object but strings.
package convert
