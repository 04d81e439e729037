package takeover

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// legacyTables are the tables of x_tables. nftables does not show their rules, so they are read as text.
func legacyTables() []string { return []string{"raw", "mangle", "nat", "filter"} }

// legacy returns the rules of x_tables that can end a packet's way and that the agent does not own.
func (k Kernels) legacy(ctx context.Context, from kernel.Kernel) (out []Stranger, err error) {
	for _, f := range []kernel.Family{kernel.IPv4, kernel.IPv6} {
		for _, table := range legacyTables() {
			t := legacyTable{walk: walk{rules: map[string][]nft.Effect{}, table: table, at: IPTablesLegacy, nat: table == "nat", ours: k.Planes.OurChain}}
			if err := from.Save(ctx, f, table, t.line); err != nil {
				return out, fmt.Errorf("read table %s of iptables-legacy: %w", table, err)
			}
			for _, c := range t.bases {
				t.where = fmt.Sprintf("iptables-legacy, table %s of IPv%d, chain %s", table, f, c.name)
				t.begin(c.name, c.drops)
			}
			out = append(out, t.found...)
		}
	}
	return out, nil
}

// legacyTable is the state of a table while its text is parsed.
type legacyTable struct {
	walk
	bases []legacyBase
}

type legacyBase struct {
	name  string
	drops bool // by its policy
}

// line parses ":FORWARD DROP [0:0]" and "-A FORWARD -d 10.0.0.1/32 -j DROP".
func (t *legacyTable) line(line []byte) error {
	if name, declares := bytes.CutPrefix(line, []byte(":")); declares {
		if w := strings.Fields(string(name)); len(w) > 1 && w[1] != "-" {
			t.bases = append(t.bases, legacyBase{w[0], w[1] == "DROP"})
		}
		return nil
	}
	rest, is := bytes.CutPrefix(line, []byte("-A "))
	if !is {
		return nil
	}
	chain, rule, _ := strings.Cut(string(rest), " ")
	if !t.isOurs(chain) {
		t.rules[chain] = append(t.rules[chain], legacyEffect(rule))
	}
	return nil
}

// legacyEffect returns the effect of a rule that iptables-save printed.
func legacyEffect(rule string) (e nft.Effect) {
	list := words(rule)
	for i := 0; i+1 < len(list); i++ {
		value := list[i+1]
		negated := i > 0 && list[i-1] == "!"
		switch list[i] {
		case "-j", "-g":
			if !e.Target(value) {
				e.Jumps = append(e.Jumps, value)
			}
		case "-d", "-s":
			p, err := netip.ParsePrefix(value)
			switch {
			case err != nil || negated:
			case list[i] == "-d":
				e.Daddr = &p
			default:
				e.Saddr = &p
			}
		case "--dport":
			if n, err := strconv.ParseUint(value, 10, 16); err == nil && !negated {
				e.Dport = uint16(n)
			}
		}
	}
	return e
}

// words splits a rule into words; a quoted string, such as a comment, is one word.
func words(rule string) (out []string) {
	for rule = strings.TrimLeft(rule, " "); rule != ""; rule = strings.TrimLeft(rule, " ") {
		end, quoted := 0, false
		for end < len(rule) && (quoted || rule[end] != ' ') {
			switch {
			case rule[end] == '"':
				quoted = !quoted
			case rule[end] == '\\' && quoted && end+1 < len(rule):
				end++
			}
			end++
		}
		out, rule = append(out, rule[:end]), rule[end:]
	}
	return out
}
