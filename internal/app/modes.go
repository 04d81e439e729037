package app

import (
	"fmt"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// mode is one data plane: how to make its driver in the current namespace, and
// how to take away what it left.
type mode struct {
	name string
	open func(*config.Config) (dataplane.Driver, readCount, error)
}

// readCount tells how often the driver has read the kernel so far.
type readCount = func() int

func builtModes() []mode {
	return []mode{{nftables.Name, openNFTables}, {iptables.Name, openIPTables}}
}

func modes() (names []string) {
	for _, m := range builtModes() {
		names = append(names, m.name)
	}
	return names
}

func openNFTables(*config.Config) (dataplane.Driver, readCount, error) {
	k, err := nft.Open(nft.Config{})
	if err != nil {
		return nil, nil, fmt.Errorf("open a netlink socket to nftables: %w", err)
	}
	count := nft.NewCounter(withFaults(k))
	reads := func() int { c := count.Counts(); return int(c.Reads + c.Generation) }
	return nftables.New(nftables.Params{Kernel: count}), reads, nil
}

func openDriver(cfg *config.Config) (dataplane.Driver, readCount, error) {
	for _, m := range builtModes() {
		if m.name == cfg.Mode {
			return m.open(cfg)
		}
	}
	return nil, nil, fmt.Errorf("proxy mode %q is not built", cfg.Mode)
}
