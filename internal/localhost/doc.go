// Package localhost answers NodePorts on ::1, where the kernel cannot: IPv6 has
// no route_localnet, so a packet from ::1 never leaves the machine, whatever its
// destination is rewritten to (KEP-6032). For each NodePort that has endpoints it
// listens itself and carries the bytes to one of them; TCP and UDP, not SCTP.
//
// Listeners is notified of each commit and works in its own goroutines: the engine
// waits for no socket.
package localhost
