package main

import (
	"flag"
	"fmt"
	"net/netip"
	"time"
)

// abuseSettings are the flags that only abuse has.
type abuseSettings struct {
	storming
	bounds
	holders int
	from    string
}

func abuseFlags() *abuseSettings {
	a := &abuseSettings{}
	flag.IntVar(&a.threads, "generators", 4, "threads of the storm's whole connections")
	flag.IntVar(&a.nice, "nice", 10, "of these threads")
	flag.Float64Var(&a.perSecond, "rate", 0, "attempts a second of the storm, with SYNs that nobody completes; 0: whole connections alone")
	flag.StringVar(&a.from, "syns-from", "", "the network whose addresses send them")
	flag.StringVar(&a.device, "device", "", "the proxy's interface, where attempts are counted")
	flag.IntVar(&a.holders, "holders", 2000, "connections that go nowhere")
	flag.Float64Var(&a.bounds.attempts, "least-attempts", 0, "a second, that have to arrive of the storm")
	flag.Float64Var(&a.bounds.ratio, "most-ratio", 0, "of another Service's p99 through the proxy to that without it")
	flag.IntVar(&a.bounds.memory, "most-mb", 0, "memory of the proxy")
	flag.IntVar(&a.bounds.files, "most-files", 0, "descriptors of the proxy")
	return a
}

func (a *abuseSettings) run(where, endpoint string, length time.Duration, rounds int) error {
	pid, p, err := parsePorts(where)
	if err != nil {
		return err
	}
	if a.perSecond > 0 {
		if a.storming.from, err = netip.ParsePrefix(a.from); err != nil || !a.storming.from.Addr().Is4() {
			return fmt.Errorf("-syns-from %q is no IPv4 network: %v", a.from, err)
		}
	}
	w := watched{pid: pid, device: a.device, through: p.well.String(), direct: endpoint}
	return abuse(mishaps(p, a.storming, a.holders), w, a.bounds, length, rounds)
}
