package main

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	kerneliptables "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// open returns the driver of a mode: nftables, iptables-legacy or iptables-nft. The
// driver does not pace its writes: the benchmark measures the cost of a change, and
// makes changes one by one.
func open(mode string) (dataplane.Driver, func() uint64, error) {
	backend, isIPTables := strings.CutPrefix(mode, iptables.Name+"-")
	switch {
	case mode == nftables.Name:
		k, err := nft.Open(nft.Config{})
		if err != nil {
			return nil, nil, err
		}
		count := nft.NewCounter(k)
		return nftables.New(nftables.Params{Kernel: count}), func() uint64 { return count.Counts().Reads }, nil
	case !isIPTables:
		return nil, nil, fmt.Errorf("mode %q: want nftables, iptables-legacy or iptables-nft", mode)
	}
	programs, err := kerneliptables.Installed(kerneliptables.Backend(backend))
	if err != nil {
		return nil, nil, err
	}
	k, err := kerneliptables.Open(kerneliptables.Config{Backend: kerneliptables.Backend(backend), Programs: programs})
	if err != nil {
		return nil, nil, err
	}
	count := kerneliptables.NewCounter(k)
	d := iptables.New(iptables.Params{Kernel: count, Contended: k.Contended})
	return d, func() uint64 { return uint64(count.Counts().Reads) }, nil
}
