package iptables

import (
	"fmt"
	"slices"
	"testing"
)

// fewDumps is more than the requests of a read of two tables apart from those for owned chains: for
// the generation, the list of chains and the built-in chains.
const fewDumps = 60

var everything = []string{"everything"}

// TestStrangers: whatever others write, what is found is what is there. What they wrote is read again, and little more
// than that where it can be known.
func TestStrangers(t *testing.T) {
	w := newCrowd(t)
	elsewhere := func(table, chain string) string {
		return fmt.Sprintf(`{ for i in $(seq 5000); do echo "add rule %s %s ip saddr 10.1.$((i/250)).$((i%%250)) counter return"; done; } | nft -f -`, table, chain)
	}
	for _, c := range []struct {
		does, script string
		read         []string
	}{
		{"nothing", "true", nil},
		{"adds a rule", "$IPT -t nat -A OURS-3 -j RETURN", []string{"OURS-3"}},
		{"inserts one", "$IPT -t nat -I OURS-3 -j RETURN", []string{"OURS-3"}},
		{"replaces one by one of the same size", "$IPT -t nat -R OURS-3 1 -j ACCEPT", []string{"OURS-3"}},
		{"deletes one", "$IPT -t nat -D OURS-3 1", []string{"OURS-3"}},
		{"flushes a chain", "$IPT -t nat -F OURS-4", []string{"OURS-4"}},
		{"makes it anew", "$IPT -t nat -X OURS-4; $IPT -t nat -N OURS-4; $IPT -t nat -A OURS-4 -j ACCEPT", []string{"OURS-4"}},
		{"deletes one for good", "$IPT -t nat -F OURS-5; $IPT -t nat -X OURS-5", nil},
		{"makes one with our name", "$IPT -t nat -N OURS-NEW", []string{"OURS-NEW"}},
		{"writes several at once", `printf '*nat\n:OURS-6 - [0:0]\n-A OURS-6 -j ACCEPT\n-I OURS-7 -j RETURN\n-F OURS-8\nCOMMIT\n*filter\n-A OURS-F -j ACCEPT\nCOMMIT\n' | iptables-nft-restore --noflush`,
			[]string{"OURS-6", "OURS-7", "OURS-8", "OURS-F"}},
		{"takes a jump to us away", "$IPT -t nat -D OUTPUT 1", nil},
		{"makes that of a pod", "$IPT -t nat -N CNI-A; $IPT -t nat -A CNI-A -j ACCEPT; $IPT -t nat -A POSTROUTING -j CNI-A", nil},
		{"takes it away", "$IPT -t nat -D POSTROUTING 1; $IPT -t nat -F CNI-A; $IPT -t nat -X CNI-A", nil},
		{"writes the other family's", "$IP6T -t nat -N OURS-1; $IP6T -t nat -A OURS-1 -j RETURN", everything}, // it makes the table
		{"writes it again", "$IP6T -t nat -A OURS-1 -j RETURN", nil},
		{"changes a policy", "$IPT -P FORWARD DROP", nil},
		{"sets counters back", "$IPT -Z", nil},
		{"makes a table of his own", "nft add table ip his; nft add chain ip his OURS-3; nft add rule ip his OURS-3 counter return; nft add set ip his s '{ type ipv4_addr; }'", nil},
		{"writes 5000 rules there", elsewhere("ip his", "OURS-3"), nil},
		{"deletes it", "nft delete table ip his", nil},
		{"has inet, netdev and bridge", "nft add table inet nat; nft add chain inet nat OURS-3; nft add table netdev filter; nft add table bridge nat; nft delete table inet nat", nil},
		{"writes 5000 rules into ours", "$IPT -t nat -N OURS-MANY; " + elsewhere("ip nat", "OURS-MANY"), []string{"OURS-MANY"}},
		{"flushes these", "nft flush chain ip nat OURS-MANY", []string{"OURS-MANY"}},
		{"leads to one of his", "$IPT -t nat -N CNI-B; $IPT -t nat -A OURS-9 -j CNI-B", []string{"OURS-9"}},
		{"renames it, and with that a rule of ours", "$IPT -t nat -E CNI-B CNI-C", everything},
		{"renames it there and back", "$IPT -t nat -E CNI-C CNI-B; $IPT -t nat -E CNI-B CNI-C", everything},
		{"renames ours", "$IPT -t nat -E OURS-2 OURS-TWO", everything},
		{"renames a built-in chain", "nft rename chain ip filter FORWARD FOREVER; nft rename chain ip filter FOREVER FORWARD", nil},
		{"may have renamed one", "nft add chain ip nat OURS-10", everything},
		{"makes a set among ours", "nft add set ip nat s '{ type ipv4_addr; }'", everything},
		{"lets a table sleep", "nft add table ip nat '{ flags dormant; }'", everything},
		{"wakes it up", "nft add table ip nat", everything},
		{"deletes the table", "nft delete table ip nat", everything},
		{"makes it and our chains anew", "$IPT -t nat -N OURS-3; $IPT -t nat -A OURS-3 -j ACCEPT", everything},
		{"deletes everything", "nft flush ruleset", everything},
	} {
		w.sh(c.script)
		var read []string
		asked := w.dumps(func() { read = w.warm() })
		w.isTrue(c.does)
		want := c.read
		if slices.Equal(want, everything) {
			want = w.ours()
		} else if asked > fewDumps {
			t.Errorf("%s: the kernel was asked %d times", c.does, asked)
		}
		if !slices.Equal(read, want) {
			t.Errorf("%s: %q were read, not %q", c.does, read, want)
		}
		if again := w.warm(); len(again) > 0 {
			t.Errorf("%s: once more, and %q were read", c.does, again)
		}
	}
}
