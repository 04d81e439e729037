// Package health answers whether this node should get traffic: the 10256
// server with kube-proxy's /healthz and /livez, the HTTP servers behind each
// healthCheckNodePort, and the mux of the 10249 server.
//
// Tracker is the whole logic, without I/O and with an injected clock: sources and the
// engine report to it what is pending and what was committed, and HTTP handlers read
// its state. Servers run in goroutines of their own, started and joined by app.
package health
