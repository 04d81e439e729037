package iptables

import (
	"testing"

	"github.com/fairlead/fairlead/internal/model"
)

// TestRefusalOf reads lines of iptables-save -c, as both backends print them, and no others.
func TestRefusalOf(t *testing.T) {
	web := model.ServiceKey{Namespace: "shop", Name: "web"}
	for line, want := range map[string]Refusal{
		`[2:120] -A KUBE-T-10.96.0.0-24 -d 10.96.0.11/32 -p tcp -m comment --comment "shop/web:http has no endpoints" -m tcp --dport 80 -j REJECT --reject-with tcp-reset`: {web, "http", false, 2},
		`[1:29] -A KUBE-X-udp-30080-16 -p udp -m comment --comment "shop/web:http has no local endpoints" -m udp --dport 30082 -j DROP`:                                    {web, "http", true, 1},
		`[3:58] -A KUBE-W-203.0.113.0-28 -d 203.0.113.13/32 -p udp -m comment --comment "shop/web traffic not accepted by source ranges" -m udp --dport 80 -j DROP`:        {web, "", true, 3},
	} {
		if got, ok := refusalOf([]byte(line)); !ok || got != want {
			t.Errorf("%s: %+v, %t, want %+v", line, got, ok, want)
		}
	}
	for _, line := range []string{
		"", "[", "[]", ":KUBE-REJECT - [0:0]", `[5:300] -A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT`,
		`[2:120] -A theirs -m comment --comment "shop/web:http has no endpoints" -j REJECT`, `[x:1] -A KUBE-X -m comment --comment "shop/web has no endpoints"`,
		`-A KUBE-X -m comment --comment "shop/web has no endpoints"`, `[1:1] -A KUBE-X -m comment --comment "shop/web has no endpoints`,
	} {
		if got, ok := refusalOf([]byte(line)); ok {
			t.Errorf("%q is read as %+v", line, got)
		}
	}
}
