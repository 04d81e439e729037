// Package addressplan decides where userspace mode listens for a Frontend. It is
// pure, and the only place that knows the rule; the data plane, the DNS server and
// --userspace-map all call it.
//
// # The rule
//
// With Own, which takes CAP_NET_ADMIN in a network namespace owned by the agent, a Service
// has its own addresses and ports, and NodePorts are on the node's addresses and on
// both loopbacks.
//
// Without it every address of a Service becomes one in 127.0.0.0/8, which any user
// may bind. It depends on nothing but the Service's address, so it is the same after
// a restart, on another machine and in another order of events:
//
//	a.b.c.d, b in 1..239    127.b.c.d          10.96.0.10    127.96.0.10
//	a.b.c.d, b in 240..255  127.(b-240+1).c.d  10.250.0.10   127.11.0.10
//	a.b.c.d, b = 0          127.239.c.d        10.0.0.10     127.239.0.10
//	IPv6                    127.(240+n).c.d    fd00::a       127.240.0.10
//
// where n, c and d are the last 20 bits: a Service range of IPv6 has at most those.
// 127.0.0.0/16, where other programs listen, is never used. Two Services whose
// addresses become one collide only if they have a port in common; the second then
// cannot listen, which is reported with its name.
//
// A port below FirstPort, the first that this process may bind, moves up by 10 000.
// NodePorts keep their numbers, on 127.0.0.1 and ::1.
package addressplan
