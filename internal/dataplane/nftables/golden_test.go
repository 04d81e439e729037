package nftables

import (
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/model"
)

var update = flag.Bool("update", false, "write docs/design/nftables-small.nft anew")

const (
	smallListing = "../../../docs/design/nftables-small.nft"
	smallHeader  = `# What nft 1.0.6 prints for ` + "`nft list table ip fairlead`" + ` on node-a, 192.0.2.10, pods 10.244.0.0/16. Services:
# shop/web, NodePort, 10.96.0.10:80 and 30080, three endpoints, the first of them here;
# shop/cart, ClusterIP 10.96.0.11:80, sessionAffinity ClientIP for three hours, two endpoints.
# See nftables.md. A test compares: go test ./internal/dataplane/nftables -run SmallListing -update writes this file.
`
)

// smallInstance is what docs/design/nftables-small.nft shows.
func smallInstance(t *testing.T) *dataplanetest.Bed {
	t.Helper()
	ns := ownNetns(t)
	view := model.NodeView{
		NodePortAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}, NodeAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
		Local:         model.LocalDetector{Mode: model.DetectCIDR, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}},
		MasqueradeBit: 14,
	}
	web := model.Frontend{Key: model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Addr: netip.MustParseAddr("10.96.0.10"), Port: 80},
		Kind: model.ClusterIP, Service: model.ServiceKey{Namespace: "shop", Name: "web"}, Port: "http", Verdict: model.Forward}
	for i, a := range []string{"10.244.1.5", "10.244.2.7", "10.244.3.9"} {
		web.Backends = append(web.Backends, model.Backend{Addr: netip.MustParseAddr(a), Port: 8080, Weight: 1, Local: i == 0})
	}
	node := web
	node.Key.Addr, node.Key.Port, node.Kind, node.Masquerade = netip.Addr{}, 30080, model.NodePort, true
	cart := web
	cart.Key.Addr, cart.Service.Name, cart.AffinityTimeout, cart.Backends = netip.MustParseAddr("10.96.0.11"), "cart", 3*time.Hour, web.Backends[1:]
	b := dataplanetest.NewBed(New(Params{Kernel: ns, Families: []model.Family{model.IPv4}}), view)
	b.Load(t)
	b.Base()
	b.Want(web.Service, web, node)
	b.Want(cart.Service, cart)
	b.Sync(t)
	return b
}

// The page of the docs equals the actual rules in the kernel. So this test fails if a
// rule changes and the page does not.
func TestSmallListing(t *testing.T) {
	if out, err := exec.Command("nft", "--version").Output(); err != nil || !strings.Contains(string(out), "v1.0.6") {
		t.Skipf("the page is what nft 1.0.6 prints; here is %s (%v)", out, err) // other releases print otherwise
	}
	smallInstance(t)
	out, err := exec.Command("nft", "list", "table", "ip", "fairlead").Output() // this thread is in the namespace
	if err != nil {
		t.Fatal(err)
	}
	// Before 6.5 the map of clients keeps the kernel's own bound (newClients).
	got := smallHeader + strings.ReplaceAll(string(out), "\t\tsize 65535\n", "\t\tsize 262144\n")
	if *update {
		if err := os.WriteFile(smallListing, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(smallListing)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(page), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("line %d is %q, the page differs (go test -run SmallListing -update, then look at the difference)", i+1, line)
		}
	}
	if len(strings.Split(got, "\n")) != len(want) {
		t.Error("the page goes on where the listing ends")
	}
}
