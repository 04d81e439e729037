package sysctl

// IPVS ensures the settings of ipvs mode and returns those that differed. newer: the kernel is 5.9 or later.
//
// conn_reuse_mode controls how IPVS handles a client that reuses a port while IPVS still tracks its last connection
// (kubernetes#81775). Before 5.9, mode 1 loses the first packet, which delays the connection by a second, because there is no new flow
// in conntrack; with mode 0 and expire_nodest_conn the old endpoint is reused only if it still exists. From 5.9 on, mode 1
// selects an endpoint again, also if the old endpoint gets no new connections: kube-proxy of 2019 left 0 behind.
func IPVS(s Sysctl, newer, strictARP bool) []Change {
	reuse := 0
	if newer {
		reuse = 1
	}
	type setting struct {
		name string
		to   int
	}
	settings := []setting{
		{"net/ipv4/vs/conntrack", 1}, {"net/ipv4/vs/conn_reuse_mode", reuse}, {"net/ipv4/vs/expire_nodest_conn", 1},
		{"net/ipv4/vs/expire_quiescent_template", 1}, {"net/ipv4/ip_forward", 1},
	}
	if strictARP {
		settings = append(settings, setting{"net/ipv4/conf/all/arp_ignore", 1}, setting{"net/ipv4/conf/all/arp_announce", 2})
	}
	var changes []Change
	for _, w := range settings {
		if ch, differs := ensure(s, w.name, w.to); differs {
			changes = append(changes, ch)
		}
	}
	return changes
}
