// Package traffic counts the traffic of each Service: connections, refusals, drops and bytes, by Service port and by endpoint. Its
// callers report events by address, and update which Service port owns the address. It reads no state itself.
//
// The number of rows is bounded, whatever the cluster: the busiest Service ports have rows of their own, the others share one. What
// is counted in a row stays in it, so no row ever falls: a Service port that receives a row begins at zero there, and one that
// loses its row is counted in the common one from then on.
//
// Any goroutine may call a Counter. Updates from the engine are queued as messages, so the engine waits for no lock.
package traffic
