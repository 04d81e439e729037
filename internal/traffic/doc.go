// Package traffic counts what clients did with each Service: connections, refusals, drops and bytes, by Service port and by
// endpoint. It is told what happened to which address, and which Service port has the address now; it reads nothing itself.
//
// How many rows it gives is bounded, whatever the cluster: the busiest Service ports have rows of their own, the others
// share one. What is counted in a row stays in it, so no row ever falls: a Service port that gets a row begins at zero there,
// and one that loses its row goes on in the common one.
//
// Any goroutine may call a Counter. What the engine tells it are messages: it waits for no lock.
package traffic
