// Package scenarios holds the specification of a Service's behaviour as data: one file for each case, run by package kit against any mode of the
// agent and against upstream kube-proxy. README.md describes the format.
package scenarios

import "embed"

// FS holds every scenario.
//
//go:embed *.txtar
var FS embed.FS
