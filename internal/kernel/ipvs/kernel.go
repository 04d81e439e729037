package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Kernel is the interface between a data plane and IPVS. The methods must be called from one goroutine.
type Kernel interface {
	// All calls take with each requested virtual server and its real servers, which are valid until take returns. It skips virtual
	// servers that are identified by a mark of the packet. An object that exists during the whole read is reported once;
	// one that is added, deleted or changed concurrently may be reported in its old or its new state. If it changes so fast that
	// no read completes, All returns ErrInterrupted.
	All(ctx context.Context, want Wanted, take func(v *Virtual, reals []Real) error) error
	// Virtual looks one virtual server up, Reals lists the real servers of one; a missing one has none.
	Virtual(ctx context.Context, k VirtualKey) (v Virtual, found bool, err error)
	Reals(ctx context.Context, of VirtualKey) ([]Real, error)
	// PutVirtual and PutReal create or update an object: its connections continue. A scheduler
	// that the kernel lacks is ENOENT, a real server of a missing virtual one ESRCH.
	PutVirtual(ctx context.Context, v Virtual) error
	PutReal(ctx context.Context, of VirtualKey, r Real) error
	// DelVirtual deletes the real servers too; DelReal ends the service to its connections. A
	// missing object is no error.
	DelVirtual(ctx context.Context, k VirtualKey) error
	DelReal(ctx context.Context, of VirtualKey, at netip.AddrPort) error
	// SetTimeouts sets the namespace's timeouts; a zero keeps the present one.
	SetTimeouts(ctx context.Context, t Timeouts) error
}

// Wanted selects the virtual servers to read.
type Wanted struct {
	// OnlyIPv4: Is matches no virtual server of IPv6. To read those, all have to be listed by an expensive dump.
	OnlyIPv4 bool
	Is       func(v *Virtual) bool // nil: all
}

func (w *Wanted) is(v *Virtual) bool { return w.Is == nil || w.Is(v) }

// List returns the requested virtual servers.
func List(ctx context.Context, k Kernel, want Wanted) ([]Virtual, error) {
	var out []Virtual
	err := k.All(ctx, Wanted{OnlyIPv4: want.OnlyIPv4, Is: func(v *Virtual) bool {
		if want.is(v) {
			out = append(out, *v)
		}
		return false // skips its real servers
	}}, func(*Virtual, []Real) error { return nil })
	return out, err
}

// VirtualKey identifies a virtual server.
type VirtualKey struct {
	Addr     netip.Addr
	Protocol uint8 // IPPROTO_*
	Port     uint16
}

// String returns the notation of errors: "10.0.0.1:80/6".
func (k VirtualKey) String() string {
	return fmt.Sprintf("%s/%d", netip.AddrPortFrom(k.Addr, k.Port), k.Protocol)
}

// Virtual is a virtual server.
type Virtual struct {
	VirtualKey
	Scheduler string
	Flags     Flags
	Timeout   time.Duration // of persistence, whole seconds; used with Persistent only
	// Wide: persistence handles all clients of one network as one client. It is read only, and PutVirtual clears it.
	Wide bool
}

// Flags are IP_VS_SVC_F_*.
type Flags uint32

// The flags that PutVirtual can set.
const (
	Persistent Flags = 1
	Sched1     Flags = 8    // mh: choose another real server if the selected one is unavailable
	Sched2     Flags = 0x10 // sh and mh: hash the client's port too
	settable         = Persistent | 4 | Sched1 | Sched2
)

// Real is a real server of a virtual one. Its connections are translated (IPVS calls that
// masquerading).
type Real struct {
	At     netip.AddrPort
	Weight uint32 // 0: no new connections
	// Active and Inactive are the numbers of its connections, read only: established ones, and others
	// that the kernel still tracks.
	Active, Inactive uint32
	// Method is the forwarding method (0 = translated), read only.
	Method uint32
	// Limited: it accepts no new connections above a limit. It is read only, and PutReal clears it.
	Limited bool
}

// Timeouts of idle connections, whole seconds.
type Timeouts struct{ TCP, TCPFin, UDP time.Duration }

// ErrInterrupted: concurrent changes prevent a consistent read.
var ErrInterrupted = errors.New("the state changes continuously during the read")

// ErrNoIPVS: the kernel has no IPVS and cannot load it.
var ErrNoIPVS = errors.New("the kernel has no IPVS (CONFIG_IP_VS, module ip_vs)")
