package kit

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/test/netlab"
)

// proxyMode returns the value of --proxy-mode for a mode of the kit, and the backend: iptables mode runs with each of its two backends, as
// iptables-legacy and iptables-nft.
func proxyMode(mode string) (proxy, backend string) {
	proxy, backend, _ = strings.Cut(mode, "-")
	return proxy, backend
}

func modeFlags(mode string) []string {
	proxy, backend := proxyMode(mode)
	flags := []string{"--proxy-mode", proxy}
	if backend != "" {
		flags = append(flags, "--iptables-backend", backend)
	}
	if proxy == userspace {
		flags = append(flags, "--userspace-addresses", "service")
	}
	return flags
}

// userspace is the mode in which the agent itself relays connections: an endpoint sees the node's address, whatever the client's is. Where a scenario
// expects the client's own address, the kit expects the node's in this mode. All other expectations are the same as in every mode.
const userspace = "userspace"

// ipvs is the mode in which each Service's address is also the node's own.
const ipvs = "ipvs"

// chainsLeft returns an error if cleanup left chains in iptables mode.
func chainsLeft(ctx context.Context, lab *netlab.Lab, mode string) error {
	_, backend := proxyMode(mode)
	if backend == "" {
		return nil
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		out, err := lab.Node().Run(ctx, program+"-"+backend+"-save")
		if err != nil {
			return err
		}
		if i := strings.Index(out, "KUBE-"); i >= 0 {
			return fmt.Errorf("clean-up left chains behind: %.60s", out[i:])
		}
	}
	return nil
}

// unserved returns the reason why a mode does not support a variant, whatever its scenario expects; "" if the mode supports it.
func unserved(mode string, v Variant) string {
	if mode == userspace && v.Proto == "sctp" {
		return "userspace mode does not support SCTP, and says so of the Service"
	}
	return ""
}

// refusal returns the outcome that a seen outcome stands for where a refusal is expected. In userspace mode the kernel sends neither a reset nor
// ICMP's port unreachable from an IPv4 address that is not local. Clients of TCP, and programs on the node, get host unreachable there; clients of
// UDP elsewhere get no answer (docs/userspace.md).
func (r *run) refusal(proto netlab.Protocol, to netip.Addr, seen netlab.Outcome) netlab.Outcome {
	if r.mode != userspace || !to.Is4() || netip.MustParsePrefix(netlab.ServiceCIDR4).Contains(to) {
		return seen
	}
	if seen == netlab.Unreachable || proto == netlab.UDP && seen == netlab.TimedOut {
		return netlab.Refused
	}
	return seen
}
