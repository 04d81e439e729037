//go:build !faults

package app

import (
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// What is shipped makes no faults: see faults.go.

func withFaults(k nft.Kernel) nft.Kernel { return k }

func withRestoreFaults(k iptables.Kernel) iptables.Kernel { return k }

func withServerFaults(k ipvs.Kernel) ipvs.Kernel { return k }
