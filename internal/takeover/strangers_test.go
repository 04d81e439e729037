package takeover

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
)

// theirRules are rules of others beside a jump of ours; behind some stands what is to be told of them.
const theirRules = `
$IPT -t nat -N KUBE-SERVICES
$IPT -t nat -N THEIRS
$IPT -t nat -A KUBE-SERVICES -d 10.96.0.9 -j RETURN
$IPT -t nat -A PREROUTING -d 10.96.0.1 -m comment --comment "a -j DROP" -j RETURN # pass by
$IPT -t nat -A PREROUTING -s 10.0.0.0/8 -j THEIRS
$IPT -t nat -A THEIRS -d 10.96.0.2 -j RETURN
$IPT -t nat -A THEIRS -d 10.96.0.3 -p tcp --dport 80 -j ACCEPT # pass by
$IPT -t nat -A THEIRS ! -d 10.96.0.4 -p udp -j ACCEPT # pass by
$IPT -t nat -A PREROUTING -j KUBE-SERVICES
$IPT -t nat -A PREROUTING -d 10.96.0.5 -j RETURN
$IPT -t nat -A PREROUTING -d 10.96.0.6 -p tcp --dport 80 -j DNAT --to-destination 10.0.0.1 # dnat
$IPT -t nat -A OUTPUT -d 10.96.0.7 -j RETURN
$IPT -A FORWARD -d 10.244.0.0/16 -j DROP # drop
$IPT -A FORWARD -d 10.244.0.1 -j ACCEPT
$IPT -N KUBE-FORWARD
$IPT -A FORWARD -j KUBE-FORWARD
$IPT -P INPUT DROP # policy
`

// TestStrangersOfIPTables: a rule that ends the way through a chain before our jump lets packets pass by our translation, in
// the kernel of either backend; a return from a chain that leads on to our jump does not, nor does what comes after it.
func TestStrangersOfIPTables(t *testing.T) {
	for backend, place := range map[kernel.Backend]Place{kernel.NFT: IPTablesNFT, kernel.Legacy: IPTablesLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			b := newBed(t)
			b.sh(strings.ReplaceAll(theirRules, "$IPT", "iptables-"+string(backend)))
			b.k.Planes.OurChain = func(at Place, _, chain string) bool { return at == place && strings.HasPrefix(chain, "KUBE-") }
			list, err := b.k.Strangers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range list {
				_, where, _ := strings.Cut(s.Where, "chain ")
				chain, _, _ := strings.Cut(where, " ")
				line := strings.TrimSuffix(chain, ",") + ": " + s.Effect.Ends
				for _, limit := range []any{s.Effect.Saddr, s.Effect.Daddr} {
					line += fmt.Sprintf(" %v", limit)
				}
				got = append(got, fmt.Sprintf("%s %d", line, s.Effect.Dport))
			}
			slices.Sort(got)
			want := []string{
				"FORWARD: drop <nil> 10.244.0.0/16 0", "INPUT: drop <nil> <nil> 0", "PREROUTING: dnat <nil> 10.96.0.6/32 80",
				"PREROUTING: exempt from Fairlead's rules 10.0.0.0/8 10.96.0.3/32 80", "PREROUTING: exempt from Fairlead's rules 10.0.0.0/8 <nil> 0",
				"PREROUTING: exempt from Fairlead's rules <nil> 10.96.0.1/32 0",
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
