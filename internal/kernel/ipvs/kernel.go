package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Kernel is what a data plane may ask of IPVS. The methods belong to one goroutine.
type Kernel interface {
	// All reads everything that is wanted, but for virtual servers that are found by a mark of the packet: take gets each virtual server with its real ones, which are valid until it returns.
	// What stands the whole time comes once; what comes, goes or changes meanwhile may come as it was or as it is. Where so
	// much comes that no reading ends, that is ErrInterrupted.
	All(ctx context.Context, want Wanted, take func(v *Virtual, reals []Real) error) error
	// Virtual looks one up, Reals lists those of one; a missing one has none.
	Virtual(ctx context.Context, k VirtualKey) (v Virtual, found bool, err error)
	Reals(ctx context.Context, of VirtualKey) ([]Real, error)
	// PutVirtual and PutReal make, or change what is there: connections go on. A scheduler
	// that the kernel lacks is ENOENT, a real server of an absent virtual one ESRCH.
	PutVirtual(ctx context.Context, v Virtual) error
	PutReal(ctx context.Context, of VirtualKey, r Real) error
	// DelVirtual takes its reals away; DelReal ends the service to its connections. What is
	// not there is no error.
	DelVirtual(ctx context.Context, k VirtualKey) error
	DelReal(ctx context.Context, of VirtualKey, at netip.AddrPort) error
	// SetTimeouts sets the namespace's; a zero leaves one as it is.
	SetTimeouts(ctx context.Context, t Timeouts) error
}

// Wanted says which virtual servers are to be read.
type Wanted struct {
	// OnlyIPv4 says that Is wants none of IPv6. To find those, all have to be listed in a way that is dear.
	OnlyIPv4 bool
	Is       func(v *Virtual) bool // nil: all
}

func (w *Wanted) is(v *Virtual) bool { return w.Is == nil || w.Is(v) }

// List returns the virtual servers that are wanted.
func List(ctx context.Context, k Kernel, want Wanted) ([]Virtual, error) {
	var out []Virtual
	err := k.All(ctx, Wanted{OnlyIPv4: want.OnlyIPv4, Is: func(v *Virtual) bool {
		if want.is(v) {
			out = append(out, *v)
		}
		return false // its real servers need not be read
	}}, func(*Virtual, []Real) error { return nil })
	return out, err
}

// VirtualKey is what a virtual server is found by.
type VirtualKey struct {
	Addr     netip.Addr
	Protocol uint8 // IPPROTO_*
	Port     uint16
}

// String is for errors: "10.0.0.1:80/6".
func (k VirtualKey) String() string {
	return fmt.Sprintf("%s/%d", netip.AddrPortFrom(k.Addr, k.Port), k.Protocol)
}

// Virtual is a virtual server.
type Virtual struct {
	VirtualKey
	Scheduler string
	Flags     Flags
	Timeout   time.Duration // of persistence, whole seconds; counts with Persistent only
	// Wide: persistence takes clients of one network for one client. It is read only, and PutVirtual ends it.
	Wide bool
}

// Flags are IP_VS_SVC_F_*.
type Flags uint32

// The flags that may be set.
const (
	Persistent Flags = 1
	Sched1     Flags = 8    // mh: choose another if the one that was drawn cannot be had
	Sched2     Flags = 0x10 // sh and mh: the client's port counts too
	settable         = Persistent | 4 | Sched1 | Sched2
)

// Real is a real server of a virtual one. Its connections are translated (masquerading, in
// the words of IPVS).
type Real struct {
	At     netip.AddrPort
	Weight uint32 // 0: no new connections
	// Active and Inactive are its connections, read only: established ones, and others
	// that the kernel still remembers.
	Active, Inactive uint32
	// Method is how packets are handed on (0 = translated), read only.
	Method uint32
	// Limited: with a number of connections it gets no new ones. It is read only, and PutReal ends it.
	Limited bool
}

// Timeouts of idle connections, whole seconds.
type Timeouts struct{ TCP, TCPFin, UDP time.Duration }

// ErrInterrupted: others change so much that a reading misses some of it.
var ErrInterrupted = errors.New("what is read changes all the time")

// ErrNoIPVS: the kernel has no IPVS, and cannot load it.
var ErrNoIPVS = errors.New("the kernel has no IPVS (CONFIG_IP_VS, module ip_vs)")
