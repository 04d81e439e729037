package nftables

import (
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Name is the value of --proxy-mode.
const Name = "nftables"

// tableName is the name of the agent's table in both families.
const tableName = "fairlead"

// chainLinger is how long an unused shared chain is kept. There are two reasons.
// Kernels before 6.2 mishandle a transaction that deletes a chain together with a
// verdict element that points to it. And creating a chain costs a walk through the map
// of endpoints, so the chain should still exist when a Service that alternates between
// two sizes, even daily, needs it again.
const chainLinger = 36 * time.Hour

// foreignLinger is how long an unused foreign chain or set is kept. It is long enough
// to avoid the fault of kernels before 6.2.
const foreignLinger = 2 * time.Second

// Params configure a Driver.
type Params struct {
	Kernel nft.Kernel
	// Finder is used by Compare. It needs a socket other than Kernel's, because Compare
	// runs concurrently with the engine. Without a Finder, Compare returns an error.
	Finder nft.Finder
	// Surveyor is used by Survey, which reads all objects concurrently with the engine.
	// It needs a socket of its own. Without a Surveyor, Survey returns an error.
	Surveyor nft.Reader
	// Families are the families to serve; empty means both. Probe removes those that
	// the kernel does not support.
	Families []model.Family
	// Ledger is shared with another writer that uses the same Kernel and owns another
	// table. The field Beside reports whether a table is one of that writer's; Watch
	// observes the tables of both. If Ledger is nil the Driver creates its own.
	Ledger *nft.Ledger
	Beside func(nft.TableRef) bool
}

// Driver is the nftables data plane. Its methods must be called from one goroutine,
// except Watch, Compare and Survey, which may run concurrently with the others.
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

// Width implements dataplane.Driver. It returns the bytes of one endpoint in the value of
// a pool or of a set of live endpoints, 0 for other kinds.
func (d *Driver) Width(k dataplane.Key) int {
	if def := defOf(k.Kind); def != nil && !def.hashed && (def.shape == shapePool || def.shape == shapeLive) {
		return def.slotWidth(k.Family)
	}
	return 0
}

// Linger implements dataplane.Driver. It returns how long an unused object is kept.
func (d *Driver) Linger(k dataplane.Key) time.Duration {
	switch k.Kind {
	case kindLeafChain, kindOuterChain:
		if ourChain(k.ID) {
			return chainLinger
		}
		return foreignLinger
	case kindSet: // the rules of a foreign chain may refer to it
		return foreignLinger
	}
	return 0
}

// isSticky reports whether a name is that of a sticky chain, which belongs to one
// Service port. All other chains are shared.
func isSticky(name string) bool { return strings.Contains(name, "/") }

// ourChain reports whether Render could emit a shared chain of this name.
func ourChain(name string) bool {
	for _, prefix := range [...]string{"ext-", "hash-", "lb-", "np-", "local-", "range-", guardedPrefix, "xl-", rejectChain} {
		if strings.HasPrefix(name, prefix) && !isSticky(name) {
			return true
		}
	}
	return false
}

// ViewChanged implements dataplane.Driver. It reports whether the terms of the views
// differ: the rules of shared chains contain the masquerade bit and, for
// externalTrafficPolicy Local, the match for pods. Ranges and addresses are members of
// sets, which Base renders.
func (d *Driver) ViewChanged(old, now *model.NodeView) bool { return termsOf(old) != termsOf(now) }

// terms are the fields of a view that Render reads. For the same terms the shared
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

// serves reports whether the Driver serves a family.
func (d *Driver) serves(f model.Family) bool {
	for _, g := range d.families {
		if f == g {
			return true
		}
	}
	return false
}
