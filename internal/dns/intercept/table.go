package intercept

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

const (
	tableName = "fairlead-dns"
	// Before connection tracking (-200) and before the raw table of iptables
	// (-300), so that no other chain has seen the packet under another address.
	priority = -301
	lifetime = 3 * time.Second
)

// target is what one family's queries are readdressed from and to.
type target struct {
	vip    netip.Addr     // the cluster DNS Service
	server netip.AddrPort // this node's server, on a port of its own
}

func (t target) family() nft.Family {
	if t.vip.Is4() {
		return nft.IPv4
	}
	return nft.IPv6
}

func tableOf(f nft.Family) nft.TableRef { return nft.TableRef{Family: f, Name: tableName} }

func port(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }

// drop deletes the table whether it is there or not.
func drop(b *nft.Batch, f nft.Family) {
	b.NewTable(tableOf(f), nil)
	b.DelTable(tableOf(f))
}

// install makes the family's table, which must not be there, for t. liveness is false on a kernel without the socket expression.
func install(b *nft.Batch, t target, liveness bool) {
	f := t.family()
	table := tableOf(f)
	b.NewTable(table, nil)
	part := nft.Addr4
	if f == nft.IPv6 {
		part = nft.Addr6
	}
	b.NewSet(nft.SetSpec{Ref: table.Set("alive"), Key: []nft.Part{part}, Flags: nft.SetDynamic | nft.SetTimeout, Timeout: lifetime, Size: 16})
	for _, h := range []struct {
		name string
		num  nft.HookNum
	}{{"prerouting", nft.HookPrerouting}, {"output", nft.HookOutput}} {
		b.NewChain(nft.ChainSpec{Ref: table.Chain(h.name), Hook: &nft.Hook{Type: "filter", Num: h.num, Priority: priority, Policy: nft.PolicyAccept}})
	}
	b.NewChain(nft.ChainSpec{Ref: table.Chain("beat")})
	b.NewRule(nft.RuleSpec{Chain: table.Chain("prerouting"), Exprs: t.question()})
	for _, proto := range []uint8{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		b.NewRule(nft.RuleSpec{Chain: table.Chain("prerouting"), Exprs: t.redirect(proto, liveness)})
	}
	for _, proto := range []uint8{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		b.NewRule(nft.RuleSpec{Chain: table.Chain("prerouting"), Exprs: t.shut(proto)})
		b.NewRule(nft.RuleSpec{Chain: table.Chain("output"), Exprs: t.restore(proto)})
	}
	b.NewRule(nft.RuleSpec{Chain: table.Chain("beat"), Exprs: t.beat()})
}

// question redirects the agent's own question to the server, whether queries are redirected or not:
//
//	iifname "fairlead-dns" ip daddr <vip> udp dport 53 notrack ip daddr set <server> udp dport set <port> accept
func (t target) question() []nft.Expr {
	f, r := t.family(), nft.Word(0)
	e := append(cameBy(podDevice, nft.Equal), nft.DestAddr(f, r), nft.Equal(r, t.vip.AsSlice()))
	return append(append(e, isPort(unix.IPPROTO_UDP, nft.DestPort(r), 53)...), t.toServer(unix.IPPROTO_UDP)...)
}

// redirect readdresses a query to the server:
//
//	ip daddr @alive udp dport 53 socket transparent 1 notrack ip daddr set <server> udp dport set <port> accept
func (t target) redirect(proto uint8, liveness bool) []nft.Expr {
	f, r := t.family(), nft.Word(0)
	e := append([]nft.Expr{nft.DestAddr(f, r), nft.InSet("alive", r)}, isPort(proto, nft.DestPort(r), 53)...)
	if liveness {
		e = append(e, nft.SocketTransparent(r), nft.Equal(r, []byte{1}))
	}
	return append(e, t.toServer(proto)...)
}

func (t target) toServer(proto uint8) []nft.Expr {
	f, r := t.family(), nft.Word(0)
	return []nft.Expr{
		nft.NoTrack(),
		nft.Immediate(r, t.server.Addr().AsSlice()), nft.SetDestAddr(f, r),
		nft.Immediate(r, port(t.server.Port())), nft.SetDestPort(proto, r),
		nft.SetVerdict(nft.Accept()),
	}
}

// shut keeps everything else away from the port of redirected queries, whose
// senders the server takes to be pods:
//
//	iifname != "lo" ip daddr <server> udp dport <port> drop
func (t target) shut(proto uint8) []nft.Expr {
	f, r := t.family(), nft.Word(0)
	e := append(cameBy("lo", nft.NotEqual), nft.DestAddr(f, r), nft.Equal(r, t.server.Addr().AsSlice()))
	return append(append(e, isPort(proto, nft.DestPort(r), t.server.Port())...), nft.SetVerdict(nft.Drop()))
}

// restore sets the source of an answer back to the Service's address. Answers to the agent's
// own question then renew the element:
//
//	ip saddr <server> udp sport <port> notrack ip saddr set <vip> udp sport set 53 goto beat
func (t target) restore(proto uint8) []nft.Expr {
	f, r := t.family(), nft.Word(0)
	end := nft.Accept()
	if proto == unix.IPPROTO_UDP {
		end = nft.Goto("beat")
	}
	e := append([]nft.Expr{nft.SourceAddr(f, r), nft.Equal(r, t.server.Addr().AsSlice())}, isPort(proto, nft.SourcePort(r), t.server.Port())...)
	return append(e,
		nft.NoTrack(),
		nft.Immediate(r, t.vip.AsSlice()), nft.SetSourceAddr(f, r),
		nft.Immediate(r, port(53)), nft.SetSourcePort(proto, r),
		nft.SetVerdict(end))
}

// beat renews the element: ip daddr <asker> update @alive { ip saddr timeout 3s }
func (t target) beat() []nft.Expr {
	f, r := t.family(), nft.Word(0)
	return []nft.Expr{
		nft.DestAddr(f, r), nft.Equal(r, asker(t.vip).AsSlice()),
		nft.SourceAddr(f, r), nft.Update(nft.UpdateSpec{Set: "alive", Key: r, Timeout: lifetime}),
	}
}

// isPort compares a port, which load puts into the first register.
func isPort(proto uint8, load nft.Expr, p uint16) []nft.Expr {
	r := nft.Word(0)
	return []nft.Expr{nft.MetaL4Proto(r), nft.Equal(r, []byte{proto}), load, nft.Equal(r, port(p))}
}

// cameBy compares the device by which a packet came in.
func cameBy(device string, compare func(nft.Reg, []byte) nft.Expr) []nft.Expr {
	r := nft.Word(0)
	return []nft.Expr{nft.Meta(unix.NFT_META_IIFNAME, r), compare(r, nft.AppendIfName(nil, device))}
}
