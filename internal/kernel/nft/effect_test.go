package nft

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// TestEffectOf reads what the nft command writes.
func TestEffectOf(t *testing.T) {
	netnstest.Enter(t)
	nftTool(t, `table inet them {
	chain other { counter reject; }
	chain forward { type filter hook forward priority 0; policy drop;
		ip daddr 10.244.1.11 tcp dport 8080 drop
		ip daddr 10.244.0.0/16 drop
		ip saddr 10.244.1.11 meta l4proto tcp reject with tcp reset
		ip6 daddr fd00::11 jump other
		ct state established accept
		ip daddr != 10.0.0.1 drop
		meta mark 7 drop
	}
	chain pre { type nat hook prerouting priority -100; ip daddr 10.96.0.10 tcp dport 80 dnat ip to 10.0.0.1:80; udp dport 53 redirect to :54; }
}`, "-f", "-")
	rules, err := another(t).Rules(t.Context(), TableRef{Family: Inet, Name: "them"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range rules {
		e := EffectOf(&rules[i])
		line := []string{rules[i].Chain.Name, e.Ends}
		if e.Daddr != nil {
			line = append(line, "to", e.Daddr.String())
		}
		if e.Saddr != nil {
			line = append(line, "from", e.Saddr.String())
		}
		if e.Dport != 0 {
			line = append(line, fmt.Sprint("port ", e.Dport))
		}
		got = append(got, strings.Join(append(line, e.Jumps...), " "))
	}
	want := []string{"other reject", "forward drop to 10.244.1.11/32 port 8080", "forward drop to 10.244.0.0/16", "forward reject from 10.244.1.11/32",
		"forward  to fd00::11/128 other", "forward ", "forward drop", "forward drop", "pre dnat to 10.96.0.10/32 port 80", "pre redirect port 53"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
