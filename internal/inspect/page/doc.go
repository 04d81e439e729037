// Package page renders the status page of the metrics address: one template, one
// embedded style sheet, no script. It runs on the goroutines of that server.
package page
