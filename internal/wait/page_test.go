package wait

import (
	"testing"

	"github.com/miekg/dns"

	fairdns "github.com/fairlead/fairlead/internal/dns"
)

// TestPagesEnd: a name server that names a page that is not later than the one it was asked for ends the list.
func TestPagesEnd(t *testing.T) {
	for _, c := range []struct {
		from string
		more bool
	}{{"401", true}, {"400", false}, {"0", false}, {"-1", false}, {"x", false}} {
		q := fairdns.StatusQuestion{From: 400}
		m := &dns.Msg{Answer: []dns.RR{&dns.TXT{Txt: []string{"more from=" + c.from}}}}
		if got := (&status{}).read(m, &q); got != c.more {
			t.Errorf("from=%s: another page is %t", c.from, got)
		}
	}
}
