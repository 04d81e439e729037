// Package ipvs is the seam to what kube-proxy's ipvs mode leaves in a network
// namespace besides iptables chains: the device kube-ipvs0 with every Service
// address, and the ipsets that its chains look into. It finds and removes them.
//
// takeover calls it. Virtual servers are left: without the device and behind our
// translation no packet reaches them; `ipvsadm --clear` removes them.
package ipvs
