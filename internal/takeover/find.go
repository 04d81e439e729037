package takeover

import (
	"context"
	"errors"
	"fmt"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// The owners of rules.
const (
	Fairlead  = "fairlead"
	KubeProxy = "kube-proxy"
)

// Place is where rules are, with the values of --proxy-mode and --iptables-backend.
type Place string

// The places.
const (
	NFTables       Place = "nftables"
	IPTablesNFT    Place = "iptables-nft"
	IPTablesLegacy Place = "iptables-legacy"
	IPVS           Place = "ipvs"
)

// PlaceOf returns the place that a backend of iptables writes to.
func PlaceOf(b kernel.Backend) Place { return "iptables-" + Place(b) }

// Leftover is the set of objects that one owner has in one place.
type Leftover struct {
	Owner string
	Place Place
	What  string // "table ip kube-proxy", "73 chains"
	// Stuck is why it cannot be removed here; "" if it can.
	Stuck  string
	remove func(context.Context) error
	// retire, if not nil, is called before the removal: open connections continue until they end.
	retire func(context.Context) (connections int, err error)
}

// String returns the form for the log: "kube-proxy's 73 chains in iptables-legacy".
func (l *Leftover) String() string { return fmt.Sprintf("%s's %s in %s", l.Owner, l.What, l.Place) }

// Kernels are the kernel clients through which leftovers are found and removed.
type Kernels struct {
	NFT nft.Kernel // nil if the kernel has no nf_tables
	// IPTables are the backends whose programs are installed.
	IPTables []kernel.Kernel
	Planes   Planes
}

// Planes are the data planes' functions that recognise and remove objects of this agent and of kube-proxy.
type Planes struct {
	// OurTable reports whether a table belongs to this agent's nftables mode.
	OurTable func(*nft.Table) bool
	// OurChain reports whether a chain that Strangers finds in nftables (IPTablesNFT) or x_tables (IPTablesLegacy) belongs to the
	// mode that runs; nil: none does.
	OurChain func(at Place, table, chain string) bool
	// CountChains returns the number of an owner's chains in one backend, and RemoveChains removes them.
	CountChains  func(ctx context.Context, k kernel.Kernel, owner string) (int, error)
	RemoveChains func(ctx context.Context, k kernel.Kernel, owner string) error
	// OurServers reports whether a table belongs to this agent's ipvs mode. The functions below are nil where the kernel has no IPVS.
	OurServers func(*nft.Table) bool
	// RetireServers admits no new connections to the virtual servers of a proxy that has stopped, this agent's or
	// kube-proxy's, and returns how many are open. RemoveServers removes the agent's, RemoveDevice those on the device, and the device.
	RetireServers               func(context.Context) (connections int, err error)
	RemoveServers, RemoveDevice func(context.Context) error
	// RetireNodePorts and RemoveNodePorts do the same for the virtual servers that a kube-proxy has left on the node's own addresses.
	RetireNodePorts func(context.Context) (connections int, err error)
	RemoveNodePorts func(context.Context) error
	// RemoveCounters removes the counters that rules of iptables feed, after the rules; nil: the counters stay.
	RemoveCounters func(context.Context) error
}

// Find returns an owner's leftovers. After an error in one place it still returns those of the others.
func (k Kernels) Find(ctx context.Context, owner string) ([]Leftover, error) {
	var out []Leftover
	var problems []error
	add := func(found []Leftover, err error) {
		out = append(out, found...)
		if err != nil {
			problems = append(problems, err)
		}
	}
	add(k.tables(ctx, owner))
	add(k.chains(ctx, owner))
	add(k.servers(ctx, owner))
	return out, errors.Join(problems...)
}

const kubeProxyTable = "kube-proxy"

// tables returns an owner's tables of nftables modes.
func (k Kernels) tables(ctx context.Context, owner string) ([]Leftover, error) {
	if k.NFT == nil {
		return nil, nil
	}
	list, err := k.NFT.Tables(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the tables of nftables: %w", err)
	}
	var out []Leftover
	for i := range list {
		ref := list[i].Ref
		l := Leftover{Owner: owner, Place: NFTables, What: "table " + ref.String()}
		switch {
		case owner == KubeProxy && ref.Name == kubeProxyTable:
			l.remove = func(ctx context.Context) error { return k.drop(ctx, ref) }
		case owner == Fairlead && k.Planes.OurTable(&list[i]):
			l.remove = func(ctx context.Context) error { return k.drop(ctx, ref) }
		default:
			continue
		}
		out = append(out, l)
	}
	return out, nil
}

func (k Kernels) drop(ctx context.Context, ref nft.TableRef) error {
	if err := nft.EmptyHooks(ctx, k.NFT, ref); err != nil {
		return err
	}
	var b nft.Batch
	b.NewTable(ref, nil) // so that it is no error if another program has deleted it concurrently
	b.DelTable(ref)
	_, err := k.NFT.Commit(ctx, &b)
	return err
}

// chains returns an owner's chains of iptables modes, in each backend that holds any rules.
func (k Kernels) chains(ctx context.Context, owner string) ([]Leftover, error) {
	var out []Leftover
	var problems []error
	for _, b := range [...]kernel.Backend{kernel.NFT, kernel.Legacy} {
		used, err := k.inUse(ctx, b)
		if err != nil {
			problems = append(problems, err)
		}
		if !used {
			continue
		}
		l := Leftover{Owner: owner, Place: PlaceOf(b)}
		at := k.backend(b)
		if at == nil {
			if owner == KubeProxy && b == kernel.NFT && k.hasChain(ctx) {
				l.What, l.Stuck = "chains", "the iptables programs are not installed here; run kube-proxy --cleanup on this node"
				out = append(out, l)
			}
			continue
		}
		n, err := k.Planes.CountChains(ctx, at, owner)
		if err != nil {
			problems = append(problems, fmt.Errorf("read %s: %w", l.Place, err))
		}
		if n == 0 {
			continue
		}
		l.What = fmt.Sprintf("%d chains", n)
		if n == 1 {
			l.What = "1 chain"
		}
		l.remove = func(ctx context.Context) error {
			held, err := k.holdChains(ctx, b)
			if err != nil {
				return err
			}
			if err := errors.Join(k.Planes.RemoveChains(ctx, at, owner), k.dropEmpty(ctx, held)); err != nil {
				return err
			}
			if k.Planes.RemoveCounters != nil {
				return k.Planes.RemoveCounters(ctx)
			}
			return nil
		}
		out = append(out, l)
	}
	return out, errors.Join(problems...)
}

func (k Kernels) backend(b kernel.Backend) kernel.Kernel {
	for _, at := range k.IPTables {
		if at.Backend() == b {
			return at
		}
	}
	return nil
}

// inUse reports whether a backend holds any table. It is cheap, and does not make the
// kernel load a module.
func (k Kernels) inUse(ctx context.Context, b kernel.Backend) (bool, error) {
	if b == kernel.Legacy {
		return kernel.LegacyInUse(), nil
	}
	tables, err := k.baseTables(ctx)
	return len(tables) > 0, err
}

// hasChain reports whether the table nat has kube-proxy's first chain.
func (k Kernels) hasChain(ctx context.Context) bool {
	for _, f := range [...]nft.Family{nft.IPv4, nft.IPv6} {
		chains, err := k.NFT.Chains(ctx, nft.TableRef{Family: f, Name: "nat"})
		for i := range chains {
			if err == nil && chains[i].Ref.Name == "KUBE-SERVICES" {
				return true
			}
		}
	}
	return false
}

// servers returns an owner's objects of ipvs modes. The agent owns them if its table exists, or, after a flush of the rule set, its routing rule.
// Otherwise kube-proxy owns the device; it does not record what it owns.
func (k Kernels) servers(ctx context.Context, owner string) ([]Leftover, error) {
	ours, err := ipvs.HasRule()
	if err != nil {
		return nil, err
	}
	if k.NFT != nil {
		list, err := k.NFT.Tables(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the tables of nftables: %w", err)
		}
		for i := range list {
			ours = ours || k.Planes.OurServers != nil && k.Planes.OurServers(&list[i])
		}
	}
	switch {
	case owner == Fairlead && ours && k.Planes.RemoveServers != nil:
		return []Leftover{{Owner: owner, Place: IPVS, What: "virtual servers", remove: k.Planes.RemoveServers, retire: k.Planes.RetireServers}}, nil
	case owner == KubeProxy:
		return k.ipvsLeftovers(ours)
	}
	return nil, nil
}

// ipvsLeftovers returns what kube-proxy owns; that includes the device unless the agent owns it.
func (k Kernels) ipvsLeftovers(ours bool) ([]Leftover, error) {
	var out []Leftover
	has, err := ipvs.HasDevice()
	if has && !ours {
		l := Leftover{Owner: KubeProxy, Place: IPVS, What: "device " + ipvs.Device, remove: k.Planes.RemoveDevice, retire: k.Planes.RetireServers}
		if l.remove == nil {
			l.remove = func(context.Context) error { return ipvs.RemoveDevice() }
		}
		out = append(out, l)
	}
	sets, _, setsErr := ipvs.Sets()
	if len(sets) > 0 { // they show which NodePorts kube-proxy owns, so they are removed last
		what := fmt.Sprintf("%d ipsets and the virtual servers of its NodePorts", len(sets))
		out = append(out, Leftover{Owner: KubeProxy, Place: IPVS, What: what, retire: k.Planes.RetireNodePorts, remove: func(ctx context.Context) error {
			var problems []error
			if k.Planes.RemoveNodePorts != nil {
				if err := k.Planes.RemoveNodePorts(ctx); err != nil {
					return err
				}
			}
			for _, name := range sets {
				problems = append(problems, ipvs.RemoveSet(name))
			}
			return errors.Join(problems...)
		}})
	}
	return out, errors.Join(err, setsErr)
}

// Remove removes the leftover; it may be gone already.
func (l *Leftover) Remove(ctx context.Context) error {
	if l.Stuck != "" {
		return fmt.Errorf("remove %s: %s", l, l.Stuck)
	}
	if err := l.remove(ctx); err != nil {
		return fmt.Errorf("remove %s: %w", l, err)
	}
	return nil
}
