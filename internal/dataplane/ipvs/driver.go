package ipvs

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Name is the value of --proxy-mode.
const Name = "ipvs"

// DefaultScheduler chooses where neither the configuration nor the Service names another.
const DefaultScheduler = "rr"

// Params configure a Driver.
type Params struct {
	NFT       nft.Kernel
	IPVS      ipvs.Kernel
	Addresses ipvs.Addresses
	// Look is for Compare: other sockets than those above, for Compare runs beside the
	// engine. Without them Compare fails.
	Look Look
	// Beside is for Survey, and for Watch's comparisons: sockets of its own, for these read everything, and neither the
	// engine nor Compare waits for them. Without them Survey fails.
	Beside Sockets
	// Families are those to serve, both if empty. Probe takes away what the kernel cannot do.
	Families  []model.Family
	Scheduler string // "" = DefaultScheduler
	// Exclude: virtual servers there that we did not make are not ours, even on our device.
	Exclude []netip.Prefix
	// Drain is how long a removed TCP or SCTP endpoint keeps its connections.
	Drain time.Duration
	// EndGone ends TCP connections to endpoints that exist no longer at once (--reset-gone-endpoints); those to
	// endpoints that are ending and still serve go on.
	EndGone  bool
	Timeouts ipvs.Timeouts
	// Audit is how often Watch has everything compared, because IPVS tells nobody of changes; 0: never.
	Audit time.Duration
}

// Sockets are what everything is read by.
type Sockets struct {
	NFT       nft.Reader
	IPVS      ipvs.Kernel
	Addresses ipvs.Addresses
}

// Driver is the IPVS data plane. Its methods belong to one goroutine, but for Watch, Compare and Survey.
type Driver struct {
	p        Params
	families []model.Family
	rules    map[string]func() []rule // by digest
	seen     nft.Ledger
	sum      atomic.Uint64 // of all that we believe to be in IPVS
	writes   atomic.Uint64 // beginnings and ends of writes: odd while one is under way
	unsure   bool          // an Apply failed on its way
	agreed   agreed

	looking   sync.Mutex // guards what is in p.Look: one Compare at a time
	surveying sync.Mutex // guards what is in p.Beside, and rest
	rest      ipvs.Rest
}

var _ dataplane.Driver = (*Driver)(nil)

// New makes a Driver. It touches nothing.
func New(p Params) *Driver {
	if len(p.Families) == 0 {
		p.Families = []model.Family{model.IPv4, model.IPv6}
	}
	if p.Scheduler == "" {
		p.Scheduler = DefaultScheduler
	}
	return &Driver{p: p, families: p.Families, rules: map[string]func() []rule{}}
}

// Name implements dataplane.Driver.
func (d *Driver) Name() string { return Name }

// Width implements dataplane.Driver: a real server is an object of its own.
func (d *Driver) Width(dataplane.Key) int { return 0 }

// Linger implements dataplane.Driver: connections of TCP and SCTP go on over a real server that takes no
// new ones. A removed endpoint of UDP is gone (one that is only ending is still rendered): to send on to it would
// be to lose what clients send.
func (d *Driver) Linger(k dataplane.Key) time.Duration {
	if d.p.EndGone && k.Kind == kindReal && k.ID[0] == byte(model.TCP) {
		return 0
	}
	if k.Kind == kindReal {
		if of, at := parseReal(k.ID, k.Family); at.Addr().Is4() != of.Addr.Is4() {
			return 0 // it goes with its weight (withhold)
		}
	}
	switch k.Kind {
	case kindVirtual, kindReal:
		if k.ID[0] != byte(model.UDP) {
			return d.p.Drain
		}
	case kindOwned:
		if k.ID[addrLen(k.Family)] != byte(model.UDP) {
			return d.p.Drain
		}
	}
	return 0
}

// ViewChanged implements dataplane.Driver: there is a virtual server for each address of a NodePort, and nothing is taken of an address that
// the node has anyway.
func (d *Driver) ViewChanged(old, now *model.NodeView) bool {
	return !slices.Equal(old.NodePortAddrs, now.NodePortAddrs) || !slices.Equal(old.NodeAddrs, now.NodeAddrs)
}

func (d *Driver) serves(f model.Family) bool { return slices.Contains(d.families, f) }
