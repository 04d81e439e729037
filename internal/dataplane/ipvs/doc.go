// Package ipvs is the data plane over IPVS: a virtual server for each Frontend (for a NodePort one on each
// address), a real server for each endpoint, the Frontends' addresses on the device kube-ipvs0, and in
// a table of nftables of its own what IPVS cannot do: masquerading, source ranges, refusals, drops.
//
// A removed endpoint is two objects, its weight and its place as a real server: the weight goes at once,
// so that it gets no new connection, and the place lingers until its connections have had their time.
//
// The engine's goroutine calls it, but for Watch.
package ipvs
