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
	// (-300), so that nobody has seen the packet under another address.
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
	for _, proto := range []uint8{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		b.NewRule(nft.RuleSpec{Chain: table.Chain("prerouting"), Exprs: t.there(proto, liveness)})
		b.NewRule(nft.RuleSpec{Chain: table.Chain("output"), Exprs: t.back(proto)})
	}
	b.NewRule(nft.RuleSpec{Chain: table.Chain("beat"), Exprs: t.beat()})
}

// there takes a query to the server:
//
//	ip daddr @alive udp dport 53 socket transparent 1 notrack ip daddr set <server> udp dport set <port> accept
func (t target) there(proto uint8, liveness bool) []nft.Expr {
	f, r := t.family(), nft.Word(0)
	e := []nft.Expr{
		nft.DestAddr(f, r), nft.InSet("alive", r),
		nft.MetaL4Proto(r), nft.Equal(r, []byte{proto}),
		nft.DestPort(r), nft.Equal(r, port(53)),
	}
	if liveness {
		e = append(e, nft.SocketTransparent(r), nft.Equal(r, []byte{1}))
	}
	return append(e, nft.NoTrack(),
		nft.Immediate(r, t.server.Addr().AsSlice()), nft.SetDestAddr(f, r),
		nft.Immediate(r, port(t.server.Port())), nft.SetDestPort(proto, r),
		nft.SetVerdict(nft.Accept()))
}

// back gives an answer the Service's address; those to our own question then
// renew the element:
//
//	ip saddr <server> udp sport <port> notrack ip saddr set <vip> udp sport set 53 goto beat
func (t target) back(proto uint8) []nft.Expr {
	f, r := t.family(), nft.Word(0)
	end := nft.Accept()
	if proto == unix.IPPROTO_UDP {
		end = nft.Goto("beat")
	}
	return []nft.Expr{
		nft.SourceAddr(f, r), nft.Equal(r, t.server.Addr().AsSlice()),
		nft.MetaL4Proto(r), nft.Equal(r, []byte{proto}),
		nft.SourcePort(r), nft.Equal(r, port(t.server.Port())),
		nft.NoTrack(),
		nft.Immediate(r, t.vip.AsSlice()), nft.SetSourceAddr(f, r),
		nft.Immediate(r, port(53)), nft.SetSourcePort(proto, r),
		nft.SetVerdict(end),
	}
}

// beat renews the element: ip daddr <server> update @alive { ip saddr timeout 3s }
func (t target) beat() []nft.Expr {
	f, r := t.family(), nft.Word(0)
	return []nft.Expr{
		nft.DestAddr(f, r), nft.Equal(r, t.server.Addr().AsSlice()),
		nft.SourceAddr(f, r), nft.Update(nft.UpdateSpec{Set: "alive", Key: r, Timeout: lifetime}),
	}
}
