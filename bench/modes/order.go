package main

import (
	"fmt"
	"regexp"
	"strings"
)

// order returns the addresses in the order in which a packet is compared with them, if the rules are a flat list: kube-proxy's iptables
// mode writes one in an order of its own. In other modes the order has no meaning, and the addresses are returned unchanged.
func (s *subject) order(all []string) ([]string, error) {
	_, backend, iptables := strings.Cut(s.mode, "-")
	if !iptables || s.name == "fairlead" {
		return all, nil
	}
	out, err := command("node", "iptables-"+backend+"-save", "-t", "nat").Output()
	if err != nil {
		return nil, fmt.Errorf("list the rules: %w", err)
	}
	asked := map[string]bool{}
	for _, a := range all {
		asked[a] = true
	}
	var order []string
	for _, m := range regexp.MustCompile(`(?m)^-A KUBE-SERVICES -d (\S+)/32 `).FindAllStringSubmatch(string(out), -1) {
		if asked[m[1]] {
			order = append(order, m[1])
		}
	}
	if len(order) < len(all) {
		return nil, fmt.Errorf("KUBE-SERVICES has %d of %d Services", len(order), len(all))
	}
	return order, nil
}
