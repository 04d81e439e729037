// Package health answers whether this node should get traffic: the 10256
// server with kube-proxy's /healthz and /livez, the HTTP servers behind each
// healthCheckNodePort, and the mux of the 10249 server.
//
// Tracker is the whole logic, without I/O and with the clock handed in: sources
// and the engine tell it what waits and what was committed, HTTP handlers ask
// it. Servers run in goroutines of their own, started and joined by app.
package health
