package nftables

import (
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Each Service port with session affinity has its own map in each family: client
// address to the endpoint of the client's last connection. Packets fill the map, so no
// object describes its contents. The map itself is an object, which is created and
// deleted with the Service port. All addresses of the Service port share it.
//
// The agent never has to read or clean the map. A remembered endpoint is used only if
// it is in the Frontend's set of live endpoints (the set of the lookup in
// rememberedEndpoint). So one element of that set removes an endpoint for all clients that
// remember it, or restores it. The next connection of a client whose endpoint was
// removed deletes the client's stale entry and draws another endpoint.

// memory names the set and the chains that remember the clients of one Service port.
type memory struct{ port string }

// maxPlainName keeps names, with their prefix, below the kernel's limit of 255 bytes.
const maxPlainName = 200

// memoryOf returns the memory of a Frontend's Service port. nft accepts these names
// without quotes as long as they hold only what Kubernetes allows in names.
func memoryOf(f *model.Frontend) memory {
	name := strings.Join([]string{f.Service.Namespace, f.Service.Name, strings.ToLower(f.Key.Protocol.String()), f.Port}, "/")
	name = strings.TrimSuffix(name, "/") // the port of a Service with one port may have no name
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

// recall returns the name of the chain that tries the endpoint of a client's last
// connection, for the Frontends of one pool.
func (m memory) recall(p pool) string {
	return recallPrefix + strings.TrimSuffix(p.name(), "-") + "/" + m.port
}

// learn returns the name of the chain that remembers a client.
func (m memory) learn() string { return learnPrefix + m.port }

// Each map of clients is bounded, so that a flood of client addresses does not exhaust
// kernel memory (about 100 bytes a client, 130 with IPv6). Clients beyond the bound are
// balanced and not remembered.
const (
	maxClients         = 1 << 18
	affinityMaxTimeout = 3 * time.Hour // of the map itself; every element has its own
)

// clientsSpec declares a map of clients. The data holds the endpoint twice: the first
// goes to DNAT, the second into the key of the set of live endpoints. (One is not
// enough: nft 1.0.6 aborts every listing if a map's whole result becomes a key.)
func clientsSpec(f model.Family, name string) nft.SetSpec {
	addr := nft.Addr(nftFamily(f))
	return nft.SetSpec{Ref: tableRef(f).Set(name), Key: []nft.Part{addr}, Data: []nft.Part{addr, nft.Port, addr, nft.Port},
		Flags: nft.SetDynamic | nft.SetTimeout, Timeout: affinityMaxTimeout}
}

// newClients creates a map of clients in two steps. If it were declared with a size, the
// kernel would allocate the buckets for all of it at once, 4 MB for each Service port.
// Declared without, it begins with four buckets and grows; a size that is declared after
// that is only a bound. Kernels before 6.5 ignore the second declaration and keep their
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

// sameClients reports whether a set is declared as clientsSpec declares a map of clients.
func sameClients(f model.Family, row nft.Set) bool {
	spec := clientsSpec(f, row.Ref.Name)
	spec.Size = row.Size
	return spec.Matches(row)
}

// recallRules returns the rules that try the client's remembered endpoint, and forget it if
// it was removed. Both loads of the endpoint's registers before the lookup exist for nft only:
// from them its listing knows the length of the words that the lookup fills. The listing
// therefore shows the packet's own destination where the kernel has the remembered endpoint.
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

// learnRules returns the rules that remember the chosen endpoint, from the translated packet
// itself (nftables.md E3). For a known client they update the time only, so the timeout
// counts from the client's last new connection. If the map is full nothing is remembered.
func learnRules(l lang, m memory, p model.Protocol, timeout time.Duration) []rule {
	return []rule{nft.Join(isProto(p), rule{nft.SourceAddr(l.f, nft.Word(0))}, l.endpointTwice(), rule{
		nft.Update(nft.UpdateSpec{Set: m.clients(), Key: nft.Word(0), Data: nft.Word(dataWord), Timeout: timeout}),
	})}
}

// endpointTwice loads the packet's destination in the form in which a map of clients holds it.
func (l lang) endpointTwice() rule {
	const at = dataWord
	return rule{
		nft.DestAddr(l.f, nft.Word(at)), nft.DestPort(nft.Word(at + l.addr)),
		nft.DestAddr(l.f, nft.Word(at+l.addr+1)), nft.DestPort(nft.Word(at + 2*l.addr + 1)),
	}
}

// packLive packs the endpoints of a list, each once.
func packLive(list []model.Backend) string {
	b := make([]byte, 0, len(list)*18)
	for i := range list {
		b = nft.AppendAddr(b, list[i].Addr)
		b = append(b, byte(list[i].Port>>8), byte(list[i].Port))
	}
	return string(b)
}
