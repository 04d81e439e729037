package nftables

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// A kernel whose error identifies only the message of the refused element: the driver
// finds the element itself, and writes nothing in doing so, rebuilds included.
func TestVagueKernelIsMadeToName(t *testing.T) {
	for _, rebuild := range []bool{false, true} {
		k := nft.NewFake()
		k.Vague = true
		b := built(t, k, model.IPv4)
		poison := model.ServiceKey{Namespace: "suite", Name: "poison"}
		for i := range 40 { // neighbours in the message of the poison
			fe := *overlapping(model.IPv4)
			fe.Key.Port, fe.SourceRanges = uint16(100+i), fe.SourceRanges[:1]
			b.Want(dataplanetest.Service(1_000+i), fe)
		}
		b.Want(poison, *overlapping(model.IPv4))
		before := dataplanetest.Snapshot(t, New(Params{Kernel: k}))
		var err error
		if rebuild {
			_, err = b.Anew(t.Context(), model.IPv4)
		} else {
			_, err = b.Apply(t.Context(), b.Pending())
		}
		var invalid *dataplane.InvalidError
		if !errors.As(err, &invalid) || len(invalid.Keys) != 1 {
			t.Fatalf("rebuild %v: a vague refusal reads %v", rebuild, err)
		}
		for owner := range b.Track.Owners(invalid.Keys) {
			if owner != poison {
				t.Errorf("rebuild %v: %s is blamed", rebuild, owner)
			}
		}
		dataplanetest.Same(t, dataplanetest.Snapshot(t, New(Params{Kernel: k})), before, func(string) bool { return false })
	}
}

// The error class of each error of the kernel.
func TestErrorClasses(t *testing.T) {
	at := func(kind dataplane.Kind, want string) []dataplane.Op {
		return []dataplane.Op{{Key: dataplane.Key{Kind: kind, Family: model.IPv4}, Want: want}}
	}
	refused := func(errno unix.Errno, kind nft.OpKind) *nft.BatchError {
		return &nft.BatchError{Errno: errno, Tags: []int{0}, Errors: []nft.OpError{{Errno: errno, Kind: kind, Tags: []int{0}}}}
	}
	const (
		passes   = "passes"
		conflict = "conflict"
		invalid  = "invalid"
		rebuild  = "rebuild"
		either   = "invalid, or conflict"
	)
	for name, c := range map[string]struct {
		err  error
		kind dataplane.Kind
		want string
	}{
		"moved":                      {nft.ErrGeneration, kindServices, conflict},
		"element to delete is gone":  {refused(unix.ENOENT, nft.OpDelElement), kindServices, conflict},
		"chain is gone":              {refused(unix.ENOENT, nft.OpAddElement), kindServices, either},
		"set is gone":                {refused(unix.ENOENT, nft.OpNewRule), kindLeafChain, either},
		"something leads to a chain": {refused(unix.EBUSY, nft.OpDelChain), kindLeafChain, either},
		"something leads to a set":   {refused(unix.EBUSY, nft.OpDelSet), kindClients, either},
		"a set is busy":              {refused(unix.EBUSY, nft.OpAddElement), kindServices, passes},
		"hash set has another value": {refused(unix.EEXIST, nft.OpAddElement), kindServices, conflict},
		"ranges overlap":             {refused(unix.EEXIST, nft.OpAddElement), kindAllowed, either},
		"what it is":                 {refused(unix.EINVAL, nft.OpAddElement), kindServices, invalid},
		"element not supported":      {refused(unix.EOPNOTSUPP, nft.OpAddElement), kindServices, invalid},
		"full":                       {refused(unix.ENFILE, nft.OpAddElement), kindServices, rebuild},
		"rule not supported":         {refused(unix.EOPNOTSUPP, nft.OpNewRule), kindLeafChain, passes},
		"no right":                   {&nft.BatchError{Errno: unix.EPERM}, kindServices, passes},
		"a security module":          {refused(unix.EACCES, nft.OpAddElement), kindServices, passes},
		"out of room":                {refused(unix.ENOBUFS, nft.OpAddElement), kindServices, passes},
		"as a whole":                 {&nft.BatchError{Errno: unix.EINVAL}, kindServices, passes},
		"answer lost":                {nft.ErrNoAnswer, kindServices, passes},
		"socket error":               {unix.EMSGSIZE, kindServices, passes},
	} {
		t.Run(name, func(t *testing.T) {
			want := "something"
			if strings.HasSuffix(name, "to delete is gone") || strings.HasPrefix(name, "something leads") {
				want = ""
			}
			err := New(Params{}).explain(c.err, at(c.kind, want))
			got := passes
			var inv *dataplane.InvalidError
			var reb *dataplane.RebuildError
			switch {
			case errors.As(err, &inv):
				got = invalid
				if errors.Is(err, dataplane.ErrConflict) {
					got = either
				}
				if len(inv.Keys) == 0 {
					t.Error("nobody is blamed")
				}
			case errors.As(err, &reb):
				got = rebuild
			case errors.Is(err, dataplane.ErrConflict):
				got = conflict
			case errors.Is(err, dataplane.ErrUnsupported):
				got = "ends the agent"
			}
			if got != c.want {
				t.Errorf("%v: %s, want %s", err, got, c.want)
			}
		})
	}
}

// The error names only the object that caused a refusal, not those whose refusals follow from it.
func TestConsequencesAreNotBlamed(t *testing.T) {
	ops := make([]dataplane.Op, 4)
	for i, k := range []dataplane.Kind{kindLeafChain, kindServices, kindAllowed, kindLeafChain} {
		ops[i] = dataplane.Op{Key: dataplane.Key{Kind: k, Family: model.IPv4, ID: string(rune('a' + i))}, Want: "something"}
	}
	ops[3].Want = ""
	err := New(Params{}).explain(&nft.BatchError{Errno: unix.EINVAL, Errors: []nft.OpError{
		{Errno: unix.ENOENT, Kind: nft.OpAddElement, Tags: []int{1}},
		{Errno: unix.EBUSY, Kind: nft.OpDelChain, Tags: []int{3}},
		{Errno: unix.EINVAL, Kind: nft.OpNewChain, Tags: []int{0}},
	}}, ops)
	var invalid *dataplane.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Keys) != 1 || invalid.Keys[0] != ops[0].Key {
		t.Errorf("blamed: %v", err)
	}
}

// rebuildError returns the RebuildError in err, nil if there is none.
func rebuildError(err error) *dataplane.RebuildError {
	var out *dataplane.RebuildError
	_ = errors.As(err, &out)
	return out
}
