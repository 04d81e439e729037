// Package state folds events into the current inputs (Services, EndpointSlices,
// the Node of this machine, this host's addresses) and reports which Services are
// dirty. It makes no decision about traffic.
//
// A State is the only copy of the inputs in the process; sources keep none. It is
// owned by the engine's goroutine.
package state
