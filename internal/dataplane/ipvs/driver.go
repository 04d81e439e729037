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

// Name is the value of --proxy-mode for this data plane.
const Name = "ipvs"

// DefaultScheduler is the scheduler if neither the configuration nor the Service names another.
const DefaultScheduler = "rr"

// Params configure a Driver.
type Params struct {
	NFT       nft.Kernel
	IPVS      ipvs.Kernel
	Addresses ipvs.Addresses
	// Look is for Compare. It needs other sockets than those above, because Compare runs concurrently
	// with the engine. Without them Compare fails.
	Look Look
	// Beside is for Survey, and for Watch's comparisons, which read everything. It has its own sockets, so that neither the
	// engine nor Compare waits for them. Without them Survey fails.
	Beside Sockets
	// Families are the families to serve, both if empty. Probe removes those that the kernel does not support.
	Families  []model.Family
	Scheduler string // "" = DefaultScheduler
	// Exclude are prefixes whose virtual servers the Driver owns only if it made them, even if the address is on the device.
	Exclude []netip.Prefix
	// Drain is how long a removed TCP or SCTP endpoint keeps its connections.
	Drain time.Duration
	// EndGone ends TCP connections to endpoints that no longer exist at once (--reset-gone-endpoints). Connections to
	// endpoints that are terminating and still serve continue.
	EndGone  bool
	Timeouts ipvs.Timeouts
	// Audit is the interval at which Watch compares everything, because IPVS does not notify of changes; 0: never.
	Audit time.Duration
}

// Sockets are the kernel clients of a full read.
type Sockets struct {
	NFT       nft.Reader
	IPVS      ipvs.Kernel
	Addresses ipvs.Addresses
}

// Driver is the IPVS data plane. Its methods belong to one goroutine, except Watch, Compare and Survey.
type Driver struct {
	p        Params
	families []model.Family
	rules    map[string]func() []rule // by digest
	seen     nft.Ledger
	sum      atomic.Uint64 // of the synced state of IPVS
	writes   atomic.Uint64 // number of begun and ended writes: odd during a write
	unsure   bool          // an Apply failed after it may have written
	agreed   agreed

	looking   sync.Mutex // guards p.Look: one Compare at a time
	surveying sync.Mutex // guards p.Beside and rest
	rest      ipvs.Rest
}

var _ dataplane.Driver = (*Driver)(nil)

// New returns a Driver. It does not access the kernel.
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

// Width implements dataplane.Driver. It returns 0, because each real server is a separate object.
func (d *Driver) Width(dataplane.Key) int { return 0 }

// Linger implements dataplane.Driver. Connections of TCP and SCTP continue over a real server that gets no
// new ones. A removed endpoint of UDP is gone (one that is only terminating is still rendered): packets that are still
// sent to it would be lost.
func (d *Driver) Linger(k dataplane.Key) time.Duration {
	if d.p.EndGone && k.Kind == kindReal && k.ID[0] == byte(model.TCP) {
		return 0
	}
	if k.Kind == kindReal {
		if of, at := parseReal(k.ID, k.Family); at.Addr().Is4() != of.Addr.Is4() {
			return 0 // it is deleted with its weight (withhold)
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

// ViewChanged implements dataplane.Driver. There is a virtual server for each address of a NodePort, and no port is taken of an address that
// the node has itself.
func (d *Driver) ViewChanged(old, now *model.NodeView) bool {
	return !slices.Equal(old.NodePortAddrs, now.NodePortAddrs) || !slices.Equal(old.NodeAddrs, now.NodeAddrs)
}

func (d *Driver) serves(f model.Family) bool { return slices.Contains(d.families, f) }
