// Package ipvs is the data plane over IPVS: a virtual server for each Frontend (for a NodePort one on each
// address), a real server for each endpoint, the Frontends' addresses on the device kube-ipvs0, and an nftables
// table of its own for what IPVS does not support: masquerading, source ranges, refusals, drops.
//
// A removed endpoint is two objects, its weight and its real server. The weight is deleted at once,
// so that it gets no new connection. The real server lingers so that its connections can end (Params.Drain).
//
// The methods of a Driver belong to the engine's goroutine, except Watch, Compare, Survey and Sum, which may run concurrently.
package ipvs
