package exclusions

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// maxProblems is how many bad lines are reported one by one.
const maxProblems = 20

// parse reads one address or prefix per line. A # starts a comment. A bad line is a Problem and does not affect the other
// lines.
func parse(object, text string) (list []netip.Prefix, problems []model.Problem) {
	bad := 0
	for n, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		p, err := prefix(line)
		if err == nil {
			list = append(list, p)
			continue
		}
		if bad++; bad <= maxProblems {
			problems = append(problems, model.Problem{Object: object, Field: fmt.Sprintf("line %d", n+1), Reason: err.Error()})
		}
	}
	if bad > maxProblems {
		problems = append(problems, model.Problem{Object: object, Reason: fmt.Sprintf("%d more lines are not addresses", bad-maxProblems)})
	}
	if len(list) > maxPrefixes {
		problems = append(problems, model.Problem{Object: object, Reason: fmt.Sprintf("%d addresses are more than %d: nothing is accelerated", len(list), maxPrefixes)})
		list = everything()
	}
	return list, problems
}

func prefix(line string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(line)
	if err != nil {
		a, bad := netip.ParseAddr(line)
		if bad != nil || a.Zone() != "" {
			return p, fmt.Errorf("%q is neither an address nor a prefix, such as 10.1.2.3 or fd00:1::/64", line)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if a := p.Addr(); a.Is4In6() { // the kernel compares IPv4 addresses
		if p.Bits() < 96 {
			return p, fmt.Errorf("%q is a prefix of IPv4-mapped IPv6 addresses: write the IPv4 prefix", line)
		}
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}
