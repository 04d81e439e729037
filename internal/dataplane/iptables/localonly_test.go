package iptables

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/model"
)

// TestLocalPolicySendsTheNodeMasqueraded: under externalTrafficPolicy Local pods use all
// endpoints with their own address, the node all with a translated one, others those here.
func TestLocalPolicySendsTheNodeMasqueraded(t *testing.T) {
	view := dataplanetest.View()
	f := dataplanetest.ClusterIP(model.IPv4, 0, 3)
	f.Kind, f.LocalOnly, f.LocalVerdict, f.LocalBackends = model.LoadBalancer, true, model.Forward, f.Backends[:1]
	var got []string
	New(Params{}).Render(&f, &view, func(o dataplane.Object) {
		if o.Key.Kind == kindExternal {
			got = strings.Split(o.Value, "\n")
		}
	})
	for i := range got { // chain names end in a hash
		if at := strings.Index(got[i], "KUBE-SV"); at >= 0 {
			got[i] = got[i][:at+len("KUBE-SVC")]
		}
	}
	want := []string{"-s 10.244.0.0/16 -g KUBE-SVC", fromLocal + " -j KUBE-MARK-MASQ", fromLocal + " -g KUBE-SVC", "-j KUBE-SVL"}
	if !slices.Equal(got, want) {
		t.Errorf("rules\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
