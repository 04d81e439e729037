package nftables

import (
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Each Service port with session affinity has a map of its own in each family:
// client address to the last endpoint of that client. All addresses of the Service
// port share the map. Packets fill it, so no object describes its elements. The map
// itself is an object, which is created and deleted with the Service port.
//
// The agent never reads or cleans the map. A remembered endpoint is used only if it
// is in the Frontend's set of live endpoints (recallRules does that lookup). So
// removing or restoring an endpoint changes one element of that set, however many
// clients remember it. The entry of a client whose endpoint was removed is stale: the
// client's next connection deletes it and draws another endpoint.

// memory names the map and the chains that hold the affinity state of one Service port.
type memory struct{ port string }

// maxPlainName keeps names below the kernel's limit of 255 bytes, prefix included.
const maxPlainName = 200

// memoryOf returns the memory of a Frontend's Service port. nft accepts these names
// without quotes if they contain only characters that Kubernetes allows in names.
func memoryOf(f *model.Frontend) memory {
	name := strings.Join([]string{f.Service.Namespace, f.Service.Name, strings.ToLower(f.Key.Protocol.String()), f.Port}, "/")
	name = strings.TrimSuffix(name, "/") // the name of a Service's only port is optional
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

// clients returns the name of the map of clients.
func (m memory) clients() string { return clientsPrefix + m.port }

// recall returns the name of the chain that tries the last endpoint of a client,
// for the Frontends of one pool.
func (m memory) recall(p pool) string {
	return recallPrefix + strings.TrimSuffix(p.name(), "-") + "/" + m.port
}

// learn returns the name of the chain that stores a client and its endpoint.
func (m memory) learn() string { return learnPrefix + m.port }

// Each map of clients is bounded, so that a flood of client addresses does not exhaust
// kernel memory (about 100 bytes a client, 130 with IPv6). Clients beyond the bound are
// balanced without affinity.
const (
	maxClients         = 1 << 18
	affinityMaxTimeout = 3 * time.Hour // of the map itself; every element has its own timeout
)

// clientsSpec returns the declaration of a map of clients. Each element holds the
// endpoint twice: the first copy is the argument of DNAT, the second is part of the key
// of the set of live endpoints. One copy is not enough: nft 1.0.6 aborts every listing
// if the whole result of a map lookup becomes a key.
func clientsSpec(f model.Family, name string) nft.SetSpec {
	addr := nft.Addr(nftFamily(f))
	return nft.SetSpec{Ref: tableRef(f).Set(name), Key: []nft.Part{addr}, Data: []nft.Part{addr, nft.Port, addr, nft.Port},
		Flags: nft.SetDynamic | nft.SetTimeout, Timeout: affinityMaxTimeout}
}

// newClients creates a map of clients in two steps. For a map declared with a size the
// kernel allocates all buckets at once, 4 MB for each Service port. A map declared
// without one starts with four buckets and grows; a size declared afterwards is only
// an upper bound. Kernels before 6.5 ignore the second declaration and keep their
// own bound.
func newClients(b *nft.Batch, f model.Family, name string) {
	spec := clientsSpec(f, name)
	b.NewSet(spec)
	spec.Size = maxClients
	b.NewSet(spec)
}

// clientsDigest returns the value of the object of a map of clients.
func clientsDigest(f model.Family) string {
	spec := clientsSpec(f, clientsPrefix)
	return digestOf(&spec)
}

// sameClients reports whether the actual declaration of a set, apart from its size,
// is that of a map of clients.
func sameClients(f model.Family, row nft.Set) bool {
	spec := clientsSpec(f, row.Ref.Name)
	spec.Size = row.Size
	return spec.Matches(row)
}

// recallRules returns the rules that try the last endpoint of the client, and delete
// the client's entry if that endpoint is not live. The loads into the endpoint's registers before
// the lookup exist for nft only: its listing needs them to know the length of the
// registers that the lookup fills. The listing therefore shows the packet's own destination
// where the kernel has the remembered endpoint.
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

// learnRules returns the rules that store the chosen endpoint, which they read from the
// translated packet itself (nftables.md E3). For a known client they only renew the
// timeout, so it counts from the client's last new connection. If the map is full
// nothing is stored.
func learnRules(l lang, m memory, p model.Protocol, timeout time.Duration) []rule {
	return []rule{nft.Join(isProto(p), rule{nft.SourceAddr(l.f, nft.Word(0))}, l.endpointTwice(), rule{
		nft.Update(nft.UpdateSpec{Set: m.clients(), Key: nft.Word(0), Data: nft.Word(dataWord), Timeout: timeout}),
	})}
}

// endpointTwice returns the expressions that load the packet's destination in the
// format of the data of a map of clients.
func (l lang) endpointTwice() rule {
	const at = dataWord
	return rule{
		nft.DestAddr(l.f, nft.Word(at)), nft.DestPort(nft.Word(at + l.addr)),
		nft.DestAddr(l.f, nft.Word(at+l.addr+1)), nft.DestPort(nft.Word(at + 2*l.addr + 1)),
	}
}

// packLive returns the packed endpoints of a list, each once.
func packLive(list []model.Backend) string {
	b := make([]byte, 0, len(list)*18)
	for i := range list {
		b = nft.AppendAddr(b, list[i].Addr)
		b = append(b, byte(list[i].Port>>8), byte(list[i].Port))
	}
	return string(b)
}
