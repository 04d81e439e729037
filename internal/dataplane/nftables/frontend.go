package nftables

import (
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// Render implements dataplane.Driver. It emits the desired objects of one Frontend.
func (d *Driver) Render(f *model.Frontend, view *model.NodeView, emit func(dataplane.Object)) {
	if !d.serves(f.Key.Family) {
		return
	}
	var buf [24]byte
	r := frontend{d: d, f: f, view: view, emit: emit, id: string(appendID(buf[:0], f.Key)), fam: f.Key.Family}
	r.poolID = r.id
	switch {
	case f.Kind == model.NodePort:
		r.front = byNodePort
	case f.Key.Range():
		r.front, r.poolID = byRange, r.id[:len(r.id)-4]
	}
	if f.Kind == model.ClusterIP {
		r.put(kindClusterIP, r.id[:addrLen(r.fam)], present)
	}
	if f.Guarded {
		r.guard()
	}
	if f.LocalOnly {
		r.localOnly()
		return
	}
	r.whole()
}

// frontend renders one Frontend.
type frontend struct {
	d    *Driver
	f    *model.Frontend
	view *model.NodeView
	emit func(dataplane.Object)
	id   string
	// poolID is the ID of the Frontend's pool of endpoints. For a range it is the ID without
	// the ports.
	poolID string
	front  front
	fam    model.Family
}

func (r *frontend) put(k dataplane.Kind, id, value string) {
	r.emit(dataplane.Object{Key: dataplane.Key{Kind: k, Family: r.fam, ID: id}, Value: value})
}

// of returns the kind for the parts of its key by which the Frontend is looked up.
func (r *frontend) of(kinds ...dataplane.Kind) dataplane.Kind { return kinds[r.front] }

// guard emits the source ranges of a guarded Frontend.
func (r *frontend) guard() {
	if v := packPrefixes(ofFamily(r.f.SourceRanges, r.fam)); v != "" {
		r.put(r.of(kindAllowed, kindAllowedNodePort, kindAllowedRange), r.id, v)
	}
	if r.front != byRange { // a range is checked after its lookup (publish)
		r.put(r.of(kindGuarded, kindGuardedNodePort), r.id, present)
	}
}

// whole renders a Frontend that handles all clients the same way.
func (r *frontend) whole() {
	switch sane(r.f.Verdict, r.f.Backends) {
	case model.Drop:
		r.publish(dropTo(r.view))
	case model.Forward:
		l := r.leaf(false, r.f.Backends)
		l.masquerade = r.f.Masquerade
		chain := r.leafChain(l)
		r.hairpin(r.f.Backends)
		r.learn()
		r.publish(chain)
	default: // Reject; an unknown verdict fails closed
		r.refuse()
		if r.front != byRange || r.f.Guarded {
			r.publish(returnValue) // otherwise a range that contains the port would take the connection
		}
	}
}

// localOnly renders externalTrafficPolicy Local.
func (r *frontend) localOnly() {
	o := outer{verdict: sane(r.f.Verdict, r.f.Backends), other: sane(r.f.LocalVerdict, r.f.LocalBackends)}
	if o.verdict == o.other && o.verdict != model.Forward {
		r.whole()
		return
	}
	o.cluster, o.local = r.bare(false), r.bare(true)
	if o.verdict == model.Forward {
		o.cluster = r.leaf(false, r.f.Backends)
		o.cluster.masquerade = r.f.Masquerade
		r.hairpin(r.f.Backends)
	}
	if o.other == model.Forward {
		o.local = r.leaf(true, r.f.LocalBackends)
		r.hairpin(r.f.LocalBackends)
	}
	for _, l := range o.leaves() {
		r.leafChain(l)
	}
	chain := r.outerChain(o)
	r.learn()
	if o.verdict == model.Reject || o.other == model.Reject {
		r.refuse() // connections that are not translated
	}
	r.publish(chain)
}

// sane returns the verdict v, but Reject instead of Forward if there is no backend: it fails closed.
func sane(v model.Verdict, list []model.Backend) model.Verdict {
	if v == model.Forward && len(list) == 0 {
		return model.Reject
	}
	return v
}

// bare returns the description of a leaf of this Frontend, without its size class.
func (r *frontend) bare(local bool) leaf {
	l := leaf{pool: pool{r.front, local}, hash: r.f.ConsistentHash && len(r.table(local)) > 0}
	if r.remembers() {
		l.memory = memoryOf(r.f)
	}
	return l
}

func (r *frontend) table(local bool) model.HashTable {
	if local {
		return r.f.LocalHashTable
	}
	return r.f.HashTable
}

// remembers reports whether the Frontend has session affinity in the kernel. A range
// never has (policy reports that to the owner of the Service).
func (r *frontend) remembers() bool { return r.f.AffinityTimeout > 0 && r.front != byRange }

// leaf emits the slots of a list and returns the description of the chain that draws from them.
func (r *frontend) leaf(local bool, list []model.Backend) leaf {
	l := r.bare(local)
	if l.pool.set().split {
		l.shard = uint8(shardOf(r.poolID))
	}
	if l.sticky() {
		r.put(l.pool.liveKind(), r.id, packLive(list))
	}
	if l.hash {
		table := r.table(local)
		l.class = uint32(len(table))
		r.put(hashedKind(l.pool.kind()), r.poolID, packTable(table, list, l.pool.set()))
		return l
	}
	slots, n := packSlots(list, r.fam, l.pool.set())
	l.class = classOf(n)
	r.put(l.pool.kind(), r.poolID, slots)
	return l
}

// hairpin emits the objects that masquerade connections of local endpoints to themselves.
func (r *frontend) hairpin(list []model.Backend) {
	var buf [24]byte
	for i := range list {
		b := &list[i]
		if !b.Local {
			continue
		}
		id := appendID(buf[:0], model.FrontendKey{Addr: b.Addr, Protocol: r.f.Key.Protocol, Port: b.Port})
		if r.front == byRange {
			r.put(kindHairpinRange, string(id[:len(id)-2]), present)
			continue
		}
		r.put(kindHairpin, string(id), present)
	}
}

// refuse emits the element that refuses connections that were not translated.
func (r *frontend) refuse() {
	r.put(r.of(kindRefused, kindRefusedNodePort, kindRefusedRange), r.id, rejectTo(r.view))
}

// publish emits the element that sends new connections to a chain, or has their final
// verdict. For a guarded range the element points to a chain that checks the source
// ranges first.
func (r *frontend) publish(verdict string) {
	if r.f.Guarded && r.front == byRange && verdict != dropTo(r.view) {
		on, lang, counted := verdictOf(verdict), langOf(r.fam), r.view.CountRefusals
		c := chain{guardedPrefix + "none", r.d.chains.write(func() []rule { return guarded(lang, counted, on) })}
		if on.Chain != "" {
			c.name = guardedPrefix + on.Chain
		}
		r.emit(c.object(kindOuterChain, r.fam))
		verdict = c.name
	}
	r.put(r.of(kindServices, kindNodePorts, kindRanges), r.id, verdict)
}
