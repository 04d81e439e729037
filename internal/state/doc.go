// Package state folds events into the current inputs (Services, EndpointSlices,
// our Node, this host's addresses) and answers which Services are dirty. It
// decides nothing about traffic.
//
// It is the only copy of the inputs in the process; sources keep none. A State
// belongs to the engine's goroutine.
package state
