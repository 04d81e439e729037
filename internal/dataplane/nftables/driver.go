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

// tableName is the name of our table in both families.
const tableName = "fairlead"

// chainLinger is how long an unused shared chain stays. Before 6.2 the kernel
// mishandles a transaction that deletes a chain together with a verdict element
// that led to it. And a new chain costs a walk through the map of endpoints, so a
// Service that swings between two sizes, even daily, had better find it there.
const chainLinger = 36 * time.Hour

// foreignLinger is enough for the kernels before 6.2.
const foreignLinger = 2 * time.Second

// Params configure a Driver.
type Params struct {
	Kernel nft.Kernel
	// Finder is for Compare: another socket than Kernel's, for Compare runs beside
	// the engine. Without one Compare fails.
	Finder nft.Finder
	// Surveyor is for Survey, which reads everything beside the engine: one more socket.
	// Without one Survey fails.
	Surveyor nft.Reader
	// Families are those to serve, both if empty. Probe takes away what the
	// kernel cannot do.
	Families []model.Family
	// Ledger is kept together with another writer that has the same Kernel and a
	// table beside ours (Beside tells which): we watch for both. nil: it is ours alone.
	Ledger *nft.Ledger
	Beside func(nft.TableRef) bool
}

// Driver is the nftables data plane. Its methods belong to one goroutine, but
// for Watch, Compare and Survey.
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

// New makes a Driver. It touches nothing.
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

// isSticky distinguishes the chains of one Service port from those that all share.
func isSticky(name string) bool { return strings.Contains(name, "/") }

// ourChain reports whether Render could give a shared chain this name.
func ourChain(name string) bool {
	for _, prefix := range [...]string{"ext-", "hash-", "lb-", "np-", "local-", "range-", guardedPrefix, "xl-", rejectChain} {
		if strings.HasPrefix(name, prefix) && !isSticky(name) {
			return true
		}
	}
	return false
}

// ViewChanged implements dataplane.Driver: shared chains hold the masquerade bit
// and, under externalTrafficPolicy Local, the test for pods. Ranges and addresses
// are members of sets, which Base renders.
func (d *Driver) ViewChanged(old, now *model.NodeView) bool { return termsOf(old) != termsOf(now) }

// terms are all that Render looks at in a view: under the same terms the shared
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
