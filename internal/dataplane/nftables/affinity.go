package nftables

import (
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Each Service port with session affinity has a map of its own in each family:
// client address to the endpoint that the client met last. Packets fill it, so no
// object says what is in it; the map itself is an object, which comes and goes with
// the Service port. All addresses of the Service port share it.
//
// The map never has to be read or cleaned. A remembered endpoint is used only if
// the Frontend's set of live endpoints has it (the set that rememberedEndpoint looks
// into). So an endpoint leaves by one element of that set, whoever remembers it, and
// comes back as one; a client of an endpoint that left is forgotten by its own next
// connection, which draws anew.

// memory names what belongs to the memory of one Service port.
type memory struct{ port string }

// maxPlainName keeps names below the kernel's limit of 255 bytes, prefix included.
const maxPlainName = 200

// memoryOf returns the memory of a Frontend's Service port. nft takes these names
// without quotes as long as they hold only what Kubernetes allows in names.
func memoryOf(f *model.Frontend) memory {
	name := strings.Join([]string{f.Service.Namespace, f.Service.Name, strings.ToLower(f.Key.Protocol.String()), f.Port}, "/")
	name = strings.TrimSuffix(name, "/") // a Service with one port need not name it
	if len(name) <= maxPlainName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-./") == "" {
		return memory{name}
	}
	sum := newDigest()
	sum.bytes([]byte(name))
	return memory{"service-" + sum.String()}
}

const (
	clientsPrefix = "clients/"
	recallPrefix  = "recall-"
	learnPrefix   = "learn/"
)

// clients is the name of the map of clients.
func (m memory) clients() string { return clientsPrefix + m.port }

// recall is the name of the chain that tries the endpoint that a client met last,
// for the Frontends of one pool.
func (m memory) recall(p pool) string {
	return recallPrefix + strings.TrimSuffix(p.name(), "-") + "/" + m.port
}

// learn is the name of the chain that remembers a client.
func (m memory) learn() string { return learnPrefix + m.port }

// Each map of clients is bounded, so that a flood of client addresses does not eat
// kernel memory (about 100 bytes a client, 130 with IPv6); beyond it clients are balanced without
// being remembered.
const (
	maxClients         = 1 << 18
	affinityMaxTimeout = 3 * time.Hour // of the map itself; every element brings its own
)

// clientsSpec declares a map of clients. The endpoint is in it twice: the first
// goes to DNAT, the second into the key of the set of live endpoints. (One will not
// do: nft 1.0.6 aborts every listing if a map's whole result becomes a key.)
func clientsSpec(f model.Family, name string) nft.SetSpec {
	addr := nft.Addr(nftFamily(f))
	return nft.SetSpec{Ref: tableRef(f).Set(name), Key: []nft.Part{addr}, Data: []nft.Part{addr, nft.Port, addr, nft.Port},
		Flags: nft.SetDynamic | nft.SetTimeout, Timeout: affinityMaxTimeout}
}

// newClients makes a map of clients in two steps: declared with a size, the kernel
// would make the buckets for all of it at once, 4 MB for each Service port. Declared
// without, it begins with four and grows; the size that is declared for it after
// that is a bound only. Kernels before 6.5 take no second declaration and keep their
// own bound.
func newClients(b *nft.Batch, f model.Family, name string) {
	spec := clientsSpec(f, name)
	b.NewSet(spec)
	spec.Size = maxClients
	b.NewSet(spec)
}

// clientsDigest is the value of the object of a map of clients.
func clientsDigest(f model.Family) string {
	spec := clientsSpec(f, clientsPrefix)
	return digestOf(&spec)
}

// sameClients reports whether a set is a map of clients as we make them.
func sameClients(f model.Family, row nft.Set) bool {
	spec := clientsSpec(f, row.Ref.Name)
	spec.Size = row.Size
	return spec.Matches(row)
}

// recallRules try the endpoint that the client met last, and forget it if it left.
// Both loads of the endpoint's place before the lookup are there for nft: they give
// the words that the lookup fills a length in its listing, which therefore shows the
// packet's own destination where the kernel has the remembered endpoint.
func recallRules(l lang, m memory, p pool) []rule {
	second, frontend := l.addr+1, 2*(l.addr+1)
	key := rule{nft.DestAddr(l.f, nft.Word(frontend)), nft.MetaL4Proto(nft.Word(frontend + l.addr)), nft.DestPort(nft.Word(frontend + l.addr + 1))}
	if p.front == byNodePort {
		key = rule{nft.MetaL4Proto(nft.Word(frontend)), nft.DestPort(nft.Word(frontend + 1))}
	}
	try := nft.Join(rule{
		nft.DestPort(nft.Word(l.addr)), nft.DestAddr(l.f, nft.Word(second)), nft.DestPort(nft.Word(second + l.addr)),
		nft.SourceAddr(l.f, nft.Word(frontend)), nft.LookupMap(m.clients(), nft.Word(frontend), nft.Word(0)),
	}, key, rule{
		nft.InSet(defOf(p.liveKind()).name, nft.Word(second)), l.dnat(true),
	})
	forget := nft.Join(rule{nft.SourceAddr(l.f, nft.Word(0))}, l.endpointTwice(), rule{nft.Forget(m.clients(), nft.Word(0), nft.Word(dataWord))})
	return []rule{try, forget}
}

// learnRules remember the endpoint that was chosen, from the translated packet
// itself (nftables.md E3). On a known client they renew the time only, so the time
// counts from its last new connection. If the map is full nothing is remembered.
func learnRules(l lang, m memory, p model.Protocol, timeout time.Duration) []rule {
	return []rule{nft.Join(isProto(p), rule{nft.SourceAddr(l.f, nft.Word(0))}, l.endpointTwice(), rule{
		nft.Update(nft.UpdateSpec{Set: m.clients(), Key: nft.Word(0), Data: nft.Word(dataWord), Timeout: timeout}),
	})}
}

// endpointTwice loads the packet's destination as a map of clients holds it.
func (l lang) endpointTwice() rule {
	const at = dataWord
	return rule{
		nft.DestAddr(l.f, nft.Word(at)), nft.DestPort(nft.Word(at + l.addr)),
		nft.DestAddr(l.f, nft.Word(at+l.addr+1)), nft.DestPort(nft.Word(at + 2*l.addr + 1)),
	}
}

// packLive writes the endpoints of a list, each once.
func packLive(list []model.Backend) string {
	b := make([]byte, 0, len(list)*18)
	for i := range list {
		b = nft.AppendAddr(b, list[i].Addr)
		b = append(b, byte(list[i].Port>>8), byte(list[i].Port))
	}
	return string(b)
}
