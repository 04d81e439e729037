package kit

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/test/netlab"
)

// proxyMode gives the value of --proxy-mode of a mode of the kit, and the backend: iptables mode is run with each of its two backends,
// as iptables-legacy and iptables-nft.
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
	return flags
}

// chainsLeft reports what clean-up forgot in iptables mode.
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
