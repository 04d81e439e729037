package choose

import (
	"errors"
	"fmt"
	"slices"
)

// The modes, with the backends of iptables as modes of their own: the words of
// `fairlead migrate --to`.
const (
	NFTables       = "nftables"
	IPTablesNFT    = "iptables-nft"
	IPTablesLegacy = "iptables-legacy"
	IPVS           = "ipvs"
	Userspace      = "userspace"
)

// Modes returns all modes, in the order in which they are tried on a node without rules
// of the agent; backend is that of iptables which the host uses.
func Modes(backend string) []string {
	iptables := []string{IPTablesNFT, IPTablesLegacy}
	if backend == "legacy" {
		slices.Reverse(iptables)
	}
	return []string{NFTables, iptables[0], iptables[1], IPVS, Userspace}
}

// Try is the result of trying a mode here.
type Try struct {
	Mode  string `json:"mode"`
	Works bool   `json:"works"`
	// Unsure: it failed for a reason that may pass, such as a lack of memory.
	Unsure bool     `json:"unsure,omitempty"`
	Why    string   `json:"why"`
	Notes  []string `json:"notes,omitempty"`
}

// Question is the input of the rule.
type Question struct {
	// Left are the modes of which rules of the agent are here.
	Left []string
	// Backend is the one of iptables that the host uses, "" if none is installed.
	Backend string
	// Try tries a mode. The rule tries no more than it needs, since a trial loads modules.
	Try func(mode string) Try
}

// Choice is the result of the rule.
type Choice struct {
	Mode    string   `json:"mode"`
	Because []string `json:"because"`
}

// ErrNone reports that no mode works here.
var ErrNone = errors.New("no mode works here")

// Mode returns the first mode that works: first of those whose rules are here, so that a
// restart does not change the mode without a cause, then of all. If one that comes
// before failed for a reason that may pass, the error says so: to go on without it
// would change the mode of a node for good because it was short of memory once.
func Mode(q Question) (Choice, error) {
	order := Modes(q.Backend)
	slices.SortStableFunc(order, func(a, b string) int {
		return rank(q.Left, a) - rank(q.Left, b)
	})
	var c Choice
	for _, mode := range order {
		t := q.Try(mode)
		switch {
		case t.Unsure:
			return c, fmt.Errorf("cannot determine yet whether mode %s works here: %s", mode, t.Why)
		case !t.Works:
			c.Because = append(c.Because, fmt.Sprintf("%s does not work here: %s", mode, t.Why))
		default:
			c.Mode = mode
			c.Because = append(c.Because, reason(mode, slices.Contains(q.Left, mode)))
			return c, nil
		}
	}
	return c, ErrNone
}

func rank(left []string, mode string) int {
	if slices.Contains(left, mode) {
		return 0
	}
	return 1
}

func reason(mode string, here bool) string {
	if here {
		return "rules of this mode are already in the kernel, and it works: the mode does not change without a reason"
	}
	switch mode {
	case NFTables:
		return "a new connection costs the same with any number of Services, and a change writes one map element"
	case IPTablesNFT, IPTablesLegacy:
		return "of the modes that work here it serves every kind of Service; the rules form a trie, so the number of Services has little effect on a connection"
	case IPVS:
		return "the modes that serve every kind of Service do not work here; ipvs lacks port ranges (docs/modes.md)"
	}
	return "it needs no rules in the kernel: the agent relays the connections itself"
}
