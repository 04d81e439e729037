package nftables

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/netlab"
)

// rangeOf makes a Frontend serve a range of ports; each endpoint receives the
// destination port of the client.
func rangeOf(fe model.Frontend, first, last uint16) model.Frontend {
	fe.Key.Port, fe.Key.LastPort = first, last
	backends := make([]model.Backend, 0, len(fe.Backends))
	for _, b := range fe.Backends {
		b.Port = 0
		backends = append(backends, b)
	}
	fe.Backends = backends
	return fe
}

// ranges are the sorts of ranges, each on an address of its own.
func ranges(f model.Family, first, last uint16) []model.Frontend {
	plain := func(i, n int) model.Frontend { return rangeOf(dataplanetest.ClusterIP(f, i, n), first, last) }
	external := func(i int) model.Frontend {
		fe := plain(i, 5)
		fe.Kind, fe.Masquerade = model.LoadBalancer, true
		return fe
	}
	hashed, guarded, local, silent := plain(2, 9), external(3), external(4), plain(5, 3)
	hashed.ConsistentHash, hashed.HashTable = true, model.HashTable{0, 1, 2, 3, 4, 5, 6, 7}
	guarded.Guarded, guarded.SourceRanges = true, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("203.0.113.0/24")}
	if f == model.IPv6 {
		guarded.SourceRanges = []netip.Prefix{netip.MustParsePrefix("fd00::/16")}
	}
	local.Masquerade, local.LocalOnly, local.LocalVerdict, local.LocalBackends = false, true, model.Forward, local.Backends[:2]
	silent.Verdict, silent.Backends = model.Drop, nil
	return []model.Frontend{plain(0, 1), plain(1, 0), hashed, guarded, local, silent, dataplanetest.ClusterIP(f, 0, 2)}
}

func TestRanges(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		want := func(b *dataplanetest.Bed, first, last uint16) {
			b.Base()
			for _, f := range bothFamilies {
				b.Want(model.ServiceKey{Name: f.String()}, ranges(f, first, last)...)
			}
		}
		b := dataplanetest.NewBed(New(Params{Kernel: k}), dataplanetest.View())
		b.Load(t)
		// Growing, shrinking and moving on: the old and the new range overlap.
		for _, at := range [][2]uint16{{8000, 8099}, {8000, 8999}, {8010, 8020}, {8015, 9000}, {9001, 9001 + 1}} {
			want(b, at[0], at[1])
			b.Sync(t)
			if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
				t.Errorf("%v: %d objects differ, %d pending", at, len(drift), len(b.Pending()))
			}
		}
		again := dataplanetest.NewBed(New(Params{Kernel: k}), dataplanetest.View())
		again.Load(t)
		want(again, 9001, 9002)
		for _, d := range again.Pending() {
			t.Errorf("pending after a restart: %s from %q to %q", dataplanetest.Name(again.Driver, d.Key), d.Have, d.Want)
		}
		if ns, real := k.(*netns); real {
			ns.nft(t, "list", "ruleset")
		}
	})
}

// Every port of a range reaches the same port of a pod. A single port inside has its own
// verdict, whichever that is.
func TestPacketsToRanges(t *testing.T) {
	tw := newTown(t)
	for _, f := range bothFamilies {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			byName := tw.townFrontends(t, f, p)
			plain, refused, guarded, local, hairpin := byName[0], byName[2], byName[4], byName[5], byName[6]
			inside, dead := hairpin, refused
			inside.Key.Addr, inside.Key.Port = plain.Key.Addr, 8081
			dead.Key.Addr, dead.Key.Port = plain.Key.Addr, 8082
			// Pods listen on the port of this one: only the Frontend itself can refuse it.
			lb, shut := byName[1], byName[3]
			shut.Key.Addr, shut.Key.Port = lb.Key.Addr, 8080
			tw.bed.Want(model.ServiceKey{Namespace: f.String(), Name: p.String()},
				rangeOf(plain, 8080, 8099), inside, dead, rangeOf(refused, 8080, 8099), rangeOf(guarded, 8080, 8099),
				rangeOf(local, 8080, 8099), rangeOf(hairpin, 8080, 8099), rangeOf(lb, 8079, 8099), shut)
		}
	}
	tw.bed.Sync(t)
	for _, f := range bothFamilies {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			t.Run(f.String()+p.String(), func(t *testing.T) {
				for _, a := range []ask{
					{"first port", "pod-a2", "vip 1:8080", netlab.Answered, anyPod, seesClient},
					{"from outside", "client", "vip 1:8080", netlab.Answered, anyPod, seesNode},
					{"a port on which no pod listens", "pod-a2", "vip 1:8099", netlab.Refused, nil, ""},
					{"behind the range", "pod-a2", "vip 1:8100", netlab.Refused, nil, ""},
					{"a single port inside", "pod-a2", "vip 1:8081", netlab.Answered, onlyA1, seesClient},
					{"a dead single port inside", "pod-a2", "vip 1:8082", netlab.Refused, nil, ""},
					{"a dead single port inside, though pods listen there", "client", "lb 3:8080", netlab.Refused, nil, ""},
					{"no endpoints", "client", "vip 4:8090", netlab.Refused, nil, ""},
					{"guarded, allowed", "client", "lb 5:8080", netlab.Answered, anyPod, seesNode},
					{"guarded, other client", "client2", "lb 5:8080", netlab.TimedOut, nil, ""},
					{"Local from outside", "client", "lb 6:8080", netlab.Answered, onlyA1, seesClient},
					{"Local from a pod", "pod-a2", "lb 6:8080", netlab.Answered, anyPod, seesClient},
					{"hairpin", "pod-a1", "vip 7:8080", netlab.Answered, onlyA1, seesNode},
				} {
					tw.check(t, f, p, a)
				}
			})
		}
	}
}
