//go:build faults

package app

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// faultsVariable makes a share of all writes fail, for the scenario kit's fault
// runs: FAIRLEAD_FAULTS=0.1. Half of the failed ones were done, their answer lost.
// Only a binary that is built with -tags faults knows it.
const faultsVariable = "FAIRLEAD_FAULTS"

// faults is the share of writes that are to fail, and what chooses them.
func faults() (share float64, chance *rand.Rand) {
	share, err := strconv.ParseFloat(os.Getenv(faultsVariable), 64)
	if err != nil {
		return 0, nil
	}
	return share, rand.New(rand.NewPCG(uint64(os.Getpid()), 0))
}

func withFaults(k nft.Kernel) nft.Kernel {
	share, chance := faults()
	if share <= 0 {
		return k
	}
	busy := unix.ENOBUFS
	return &nft.Faulty{Kernel: k, OnCommit: nft.RandomCommits(chance, share, nft.Fault{Err: busy}, nft.Fault{Err: busy, After: true})}
}

func withServerFaults(k ipvs.Kernel) ipvs.Kernel {
	share, chance := faults()
	if share <= 0 {
		return k
	}
	return &ipvs.Faulty{Kernel: k, OnWrite: func() ipvs.Fault {
		if chance.Float64() >= share {
			return ipvs.Fault{}
		}
		return ipvs.Fault{Err: unix.ENOBUFS, After: chance.IntN(2) == 0}
	}}
}

func withRestoreFaults(k iptables.Kernel) iptables.Kernel {
	share, chance := faults()
	if share <= 0 {
		return k
	}
	killed := errors.New("signal: killed (injected fault)")
	return &iptables.Faulty{Kernel: k, OnRestore: iptables.RandomRestores(chance, share, iptables.Fault{Err: killed}, iptables.Fault{Err: killed, After: true})}
}
