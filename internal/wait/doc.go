// Package wait is `fairlead wait`: it blocks until a Service has the endpoints
// that a program needs before it starts, and says who is missing and why.
//
// It is meant for an init container. It asks the name server of its own pod, by
// a TXT record that Fairlead's DNS server answers (package dns, StatusLabel):
// so it needs no right to read anything, and what it finds is what the program
// will find. With another name server it counts addresses and knows no reasons.
//
// One goroutine, plus one for each connection it tries; nothing outlives Run.
package wait
