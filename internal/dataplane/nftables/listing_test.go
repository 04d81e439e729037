package nftables

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/model"
)

// The listing of the IPv4 table by nft 1.0.6 can be loaded again, and then lists the
// same. The exception is session affinity, whose listing nft refuses to load
// (nftables.md, Affinity).
func TestListingLoadsAgain(t *testing.T) {
	ns := ownNetns(t)
	d := New(Params{Kernel: ns})
	b := dataplanetest.NewBed(d, dataplanetest.View())
	b.Load(t)
	all := dataplanetest.Catalogue([]model.Family{model.IPv4, model.IPv6})
	b.WantAll(all)
	b.Sync(t)
	for family, addr := range map[string]string{"ip": "ip", "ip6": "ip6"} {
		out := ns.nft(t, "list", "table", family, "fairlead")
		for _, part := range []string{" dnat to " + addr + " saddr map @clients/suite/s14/tcp/http:th dport",
			"update @clients/suite/s14/tcp/http { " + addr + " saddr timeout 3h : " + addr + " daddr . tcp dport . " + addr + " daddr . tcp dport }",
			"delete @clients/suite/s14/tcp/http { " + addr + " saddr : "} {
			if !strings.Contains(out, part) {
				t.Errorf("the rules of affinity do not print as they should: no %q in %s", part, out)
			}
		}
	}
	for k, list := range all {
		for i := range list {
			list[i].AffinityTimeout = 0
		}
		b.Want(k, list...)
	}
	b.Sync(t)
	b.Now = b.Now.Add(48 * time.Hour)
	b.Track.Expire(b.Now)
	b.Sync(t)
	first := ns.nft(t, "list", "table", "ip", "fairlead")
	file := filepath.Join(t.TempDir(), "table.nft")
	if err := os.WriteFile(file, []byte(forEveryKernel(first)), 0o600); err != nil {
		t.Fatal(err)
	}
	if dir := os.Getenv("FAIRLEAD_KEEP_LISTING"); dir != "" {
		if err := os.WriteFile(dir, []byte(ns.nft(t, "list", "ruleset")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ns.nft(t, "delete", "table", "ip", "fairlead")
	ns.nft(t, "-f", file)
	if second := ns.nft(t, "list", "table", "ip", "fairlead"); sortedWords(forEveryKernel(second)) != sortedWords(forEveryKernel(first)) {
		t.Errorf("loading the listing changed it:\n%s\nwas\n%s", second, first)
	}
}

// forEveryKernel: 6.12 refuses the rule that nft 1.0.6 generates for `meta l4proto` before
// a set with intervals; it accepts the same rule from the agent (nftables.md E2).
func forEveryKernel(listing string) string {
	lines := strings.Split(listing, "\n")
	for i, l := range lines {
		for _, set := range []string{"@fw-allowed", "@fw-guarded-ranges", "@ranges", "@no-endpoint-ranges"} {
			if strings.Contains(l, set) {
				lines[i] = strings.ReplaceAll(l, "meta l4proto", "ip protocol")
			}
		}
	}
	return strings.Join(lines, "\n")
}

// sortedWords: the kernel's hashes print in another order after a reload.
func sortedWords(s string) string {
	words := strings.Fields(strings.NewReplacer(",", " ").Replace(s))
	slices.Sort(words)
	return strings.Join(words, " ")
}
