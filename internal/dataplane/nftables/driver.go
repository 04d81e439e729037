package nftables

import (
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Name is the value of --proxy-mode for this data plane.
const Name = "nftables"

// tableName is the name of the agent's table in both families.
const tableName = "fairlead"

// chainLinger is how long an unused shared chain stays. Kernels before 6.2
// mishandle a transaction that deletes a chain together with a verdict element
// that jumps to it. Also, a new chain costs a walk through the map of endpoints, so a
// Service that alternates between two sizes, even daily, should find its chain in place.
const chainLinger = 36 * time.Hour

// foreignLinger is how long sets and foreign chains stay. It is enough for the kernels before 6.2.
const foreignLinger = 2 * time.Second

// Params configure a Driver.
type Params struct {
	Kernel nft.Kernel
	// Finder is for Compare. It needs another socket than Kernel's, because Compare runs
	// concurrently with the engine. If it is nil Compare fails.
	Finder nft.Finder
	// Surveyor is for Survey, which reads everything concurrently with the engine: one more
	// socket. If it is nil Survey fails.
	Surveyor nft.Reader
	// Families are the families to serve, both if empty. Probe removes those that the
	// kernel does not support.
	Families []model.Family
	// Ledger is shared with another writer that has the same Kernel and owns other tables
	// (those for which Beside returns true): Watch observes the tables of both. nil: the Driver has its own.
	Ledger *nft.Ledger
	Beside func(nft.TableRef) bool
}

// Driver is the nftables data plane. Its methods belong to one goroutine, except
// Watch, Compare and Survey.
type Driver struct {
	k        nft.Kernel
	families []model.Family
	chains   chainBook
	batch    nft.Batch
	seen     *nft.Ledger
	watched  func(nft.TableRef) bool
	plan     plan
	sizes    setSizes

	looking sync.Mutex // guards find: one Compare at a time
	find    nft.Finder

	surveying sync.Mutex // guards surveyor
	surveyor  nft.Reader
}

var _ dataplane.Driver = (*Driver)(nil)

// New returns a Driver. It does not access the kernel.
func New(p Params) *Driver {
	if len(p.Families) == 0 {
		p.Families = []model.Family{model.IPv4, model.IPv6}
	}
	d := &Driver{k: p.Kernel, families: p.Families, chains: newChainBook(), seen: p.Ledger, find: p.Finder, surveyor: p.Surveyor}
	if d.seen == nil {
		d.seen = &nft.Ledger{}
	}
	d.watched = func(t nft.TableRef) bool { return isOurs(t) || p.Beside != nil && p.Beside(t) }
	return d
}

// Name implements dataplane.Driver.
func (d *Driver) Name() string { return Name }

// Width implements dataplane.Driver.
func (d *Driver) Width(k dataplane.Key) int {
	if def := defOf(k.Kind); def != nil && !def.hashed && (def.shape == shapePool || def.shape == shapeLive) {
		return def.slotWidth(k.Family)
	}
	return 0
}

// Linger implements dataplane.Driver.
func (d *Driver) Linger(k dataplane.Key) time.Duration {
	switch k.Kind {
	case kindLeafChain, kindOuterChain:
		if ourChain(k.ID) {
			return chainLinger
		}
		return foreignLinger
	case kindSet: // the rules of a foreign chain may use it
		return foreignLinger
	}
	return 0
}

// isSticky reports whether a chain belongs to one Service port and is not shared.
func isSticky(name string) bool { return strings.Contains(name, "/") }

// ourChain reports whether name is one that Render uses for shared chains.
func ourChain(name string) bool {
	for _, prefix := range [...]string{"ext-", "hash-", "lb-", "np-", "local-", "range-", guardedPrefix, "xl-", rejectChain} {
		if strings.HasPrefix(name, prefix) && !isSticky(name) {
			return true
		}
	}
	return false
}

// ViewChanged implements dataplane.Driver. Shared chains hold the masquerade bit
// and, under externalTrafficPolicy Local, the test for pods. Ranges and addresses
// are members of sets, which Base renders.
func (d *Driver) ViewChanged(old, now *model.NodeView) bool { return termsOf(old) != termsOf(now) }

// terms is all that Render reads from a view. Under equal terms the shared
// chains have the same rules.
type terms struct {
	bit   uint8
	mode  model.LocalMode
	iface string
	count bool
}

func termsOf(v *model.NodeView) terms {
	return terms{v.MasqueradeBit & 31, v.Local.Mode, v.Local.Interface, v.CountRefusals}
}

func (d *Driver) serves(f model.Family) bool {
	for _, g := range d.families {
		if f == g {
			return true
		}
	}
	return false
}
