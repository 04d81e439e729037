// Package wait is `fairlead wait`: it blocks until a Service has the endpoints
// that a program needs before it starts, and reports which are missing and why.
//
// It is meant for an init container. It queries the name server of its own pod for
// a TXT record that Fairlead's DNS server answers (package dns, StatusLabel):
// so it needs no permission in the API, and what it finds is what the program
// will find. With another name server it counts addresses and reports no reasons.
//
// One goroutine, plus one for each connection it tries; nothing outlives Run.
package wait
