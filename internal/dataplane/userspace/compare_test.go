package userspace

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/model"
)

// TestCompareSeesWhatIsMissing: a port that somebody else has, and a route that somebody
// took away, are not there, whatever Load says.
func TestCompareSeesWhatIsMissing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	at := netip.MustParseAddrPort(taken.Addr().String())
	f := dataplanetest.ClusterIP(model.IPv4, 0, 1)
	f.Key.Addr, f.Key.Port = at.Addr(), at.Port()
	routes := &fakeRoutes{}
	b := dataplanetest.NewBed(newDriver(t, Params{Plan: addressplan.Plan{Own: true}, Routes: routes}), model.NodeView{})
	b.Base()
	b.Want(f.Service, f)
	b.Sync(t)
	differ := func() (out []string) {
		var want []dataplane.Object
		for k, v := range b.Track.Wanted() {
			want = append(want, dataplane.Object{Key: k, Value: v})
		}
		if err := b.Driver.Compare(t.Context(), want, func(k dataplane.Key, found string) { out = append(out, b.Driver.KeyString(k)+"="+found) }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := differ(); len(got) != 1 || !strings.HasPrefix(got[0], "socket 127.0.0.1:") || !strings.HasSuffix(got[0], "=") {
		t.Errorf("with its port taken differ %q", got)
	}
	if err := routes.Delete(at.Addr()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(differ(), " "); !strings.Contains(got, "local route 127.0.0.1=") {
		t.Errorf("without the route differ %q", got)
	}
}
