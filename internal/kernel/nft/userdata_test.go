package nft

import (
	"bytes"
	"context"
	"encoding/hex"
	"testing"
)

// The typeof user data of the endpoint map, as dataplane design E2 records it.
const epsUserData = "000400000000010400000000036000040d00000001580014000407000000010c00040c00000001040c000000010e00040900000001060004" +
	"100000000214000407000000010c00040b000000010402000000031a0004170000000112000401000000010400000100020400000000043400040d00" +
	"0000012c0014000407000000010c00040c00000001040c0000000114000407000000010c00040b000000010402000000060400000000"

func TestUserDataOfEndpointMap(t *testing.T) {
	s := SetSpec{Key: []Part{Addr4, L4Proto, Port, Slot}, Data: []Part{Addr4, Port}, Typeof: true}
	if got := hex.EncodeToString(s.UserData()); got != epsUserData {
		t.Errorf("user data\n got %s\nwant %s", got, epsUserData)
	}
}

// shapes are set declarations in nft's syntax and as SetSpecs.
var shapes = []struct {
	name, text string
	spec       SetSpec
}{
	{"addresses", "set s { type ipv4_addr; }", SetSpec{Key: []Part{Addr4}}},
	{"addresses6", "set s { type ipv6_addr; }", SetSpec{Key: []Part{Addr6}}},
	{"prefixes", "set s { type ipv4_addr; flags interval; }", SetSpec{Key: []Part{Addr4}, Flags: SetInterval}},
	{"protocols", "set s { type inet_proto; }", SetSpec{Key: []Part{L4Proto}}},
	{"ports", "set s { type inet_service; }", SetSpec{Key: []Part{Port}}},
	{"marks", "set s { type mark; }", SetSpec{Key: []Part{MarkPart}}},
	{"devices", "set s { type ifname; }", SetSpec{Key: []Part{IfName}}},
	{"typeof address", "set s { typeof ip daddr; size 9; }", SetSpec{Key: []Part{Addr4}, Typeof: true, Size: 9}},
	{"typeof mark", "set s { typeof meta mark; }", SetSpec{Key: []Part{MarkPart}, Typeof: true}},
	{"hairpin", "set s { type ipv4_addr . ipv4_addr . inet_proto . inet_service; }",
		SetSpec{Key: []Part{Addr4, Addr4, L4Proto, Port}}},
	{"services", "map s { type ipv4_addr . inet_proto . inet_service : verdict; }",
		SetSpec{Key: []Part{Addr4, L4Proto, Port}, Verdicts: true}},
	{"services6", "map s { type ipv6_addr . inet_proto . inet_service : verdict; }",
		SetSpec{Key: []Part{Addr6, L4Proto, Port}, Verdicts: true}},
	{"port ranges", "map s { type ipv4_addr . inet_proto . inet_service : verdict; flags interval; }",
		SetSpec{Key: []Part{Addr4, L4Proto, Port}, Verdicts: true, Flags: SetInterval}},
	{"nodeports", "map s { type inet_proto . inet_service : verdict; }",
		SetSpec{Key: []Part{L4Proto, Port}, Verdicts: true}},
	{"address verdicts", "map s { type ipv4_addr : verdict; }", SetSpec{Key: []Part{Addr4}, Verdicts: true}},
	{"address marks", "map s { type ipv4_addr : mark; }", SetSpec{Key: []Part{Addr4}, Data: []Part{MarkPart}}},
	{"eps", "map s { typeof ip daddr . meta l4proto . th dport . numgen random mod 65536 : ip daddr . th dport; size 65536; }",
		SetSpec{Key: []Part{Addr4, L4Proto, Port, Slot}, Data: []Part{Addr4, Port}, Typeof: true, Size: 65536}},
	{"eps6", "map s { typeof ip6 daddr . meta l4proto . th dport . numgen random mod 65536 : ip6 daddr . th dport; size 65536; }",
		SetSpec{Key: []Part{Addr6, L4Proto, Port, Slot}, Data: []Part{Addr6, Port}, Typeof: true, Size: 65536}},
	{"np-eps", "map s { typeof meta l4proto . th dport . numgen random mod 65536 : ip daddr . th dport; }",
		SetSpec{Key: []Part{L4Proto, Port, Slot}, Data: []Part{Addr4, Port}, Typeof: true}},
	{"fw-allowed", "set s { type ipv4_addr . inet_proto . inet_service . ipv4_addr; flags interval; }",
		SetSpec{Key: []Part{Addr4, L4Proto, Port, Addr4}, Flags: SetInterval}},
	{"fw-allowed6", "set s { type ipv6_addr . inet_proto . inet_service . ipv6_addr; flags interval; }",
		SetSpec{Key: []Part{Addr6, L4Proto, Port, Addr6}, Flags: SetInterval}},
	{"aff", "map s { type ipv4_addr . ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; flags dynamic,timeout; timeout 3h; size 65536; }",
		SetSpec{Key: []Part{Addr4, Addr4, L4Proto, Port}, Data: []Part{Addr4, Port}, Flags: SetDynamic | SetTimeout,
			Timeout: 3 * 3600e9, Size: 65536}},
}

// TestSetsAreWhatNftMakes declares each shape through nft and through us and compares the rows that the kernel then shows.
func TestSetsAreWhatNftMakes(t *testing.T) {
	for _, c := range shapes {
		t.Run(c.name, func(t *testing.T) {
			k, ctx := ownNetns(t), context.Background()
			theirs, ours := TableRef{IPv4, "theirs"}, TableRef{IPv4, "ours"}
			nftTool(t, "table ip theirs { "+c.text+"\n}\n", "-f", "-")
			c.spec.Ref = ours.Set("s")
			b := &Batch{}
			b.NewTable(ours, nil)
			b.NewSet(c.spec)
			if _, err := k.Commit(ctx, b); err != nil {
				t.Fatal(err)
			}
			want, got := onlySet(t, k, theirs), onlySet(t, k, ours)
			if !c.spec.Matches(got) {
				t.Errorf("SetSpec does not match its own row %+v", got)
			}
			got.Ref, got.Handle = want.Ref, want.Handle
			if !bytes.Equal(want.UserData, got.UserData) {
				t.Errorf("user data\n got %x\nwant %x", got.UserData, want.UserData)
			}
			c.spec.Ref = want.Ref
			if !c.spec.Matches(want) {
				t.Errorf("SetSpec does not match nft's row %+v", want)
			}
			nftTool(t, "", "list", "ruleset")
		})
	}
}

func onlySet(t *testing.T, k Kernel, table TableRef) Set {
	t.Helper()
	sets, err := k.Sets(context.Background(), table)
	if err != nil || len(sets) != 1 {
		t.Fatalf("sets of %s: %v, %v", table, sets, err)
	}
	return sets[0]
}
