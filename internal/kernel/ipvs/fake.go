package ipvs

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Fake is a Kernel and Addresses in memory. It rejects what the kernel rejects: an unknown scheduler
// (ENOENT), a real server of a missing virtual one (ESRCH), of another family or with port 0 (EINVAL),
// an address without the device (ENODEV). It is safe for concurrent use, as the kernel is by several sockets.
type Fake struct {
	Timeouts Timeouts
	mu       sync.Mutex
	virtuals map[VirtualKey]*fakeVirtual
	device   bool
	routes   map[netip.Addr]bool
	marks    [2]uint32 // of the routing rules: IPv4, IPv6
	addrs    map[netip.Addr]bool
}

type fakeVirtual struct {
	row   Virtual
	reals map[netip.AddrPort]Real
}

var (
	_ Kernel    = (*Fake)(nil)
	_ Addresses = (*Fake)(nil)
)

// NewFake returns an empty Fake.
func NewFake() *Fake {
	return &Fake{virtuals: map[VirtualKey]*fakeVirtual{}, addrs: map[netip.Addr]bool{}, routes: map[netip.Addr]bool{}}
}

func compareKeys(a, b VirtualKey) int {
	if c := a.Addr.Compare(b.Addr); c != 0 {
		return c
	}
	return (int(a.Protocol)<<16 + int(a.Port)) - (int(b.Protocol)<<16 + int(b.Port))
}

// All implements Kernel. It clears the real servers after each call of take and filters by Wanted, so that a test detects a caller that
// keeps the slice or sets Wanted inconsistently.
func (f *Fake) All(ctx context.Context, want Wanted, take func(*Virtual, []Real) error) error {
	f.mu.Lock()
	var list []Virtual
	for _, k := range slices.SortedFunc(maps.Keys(f.virtuals), compareKeys) {
		if v := f.virtuals[k].row; (k.Addr.Is4() || !want.OnlyIPv4) && want.is(&v) {
			list = append(list, v)
		}
	}
	f.mu.Unlock()
	for i := range list {
		reals, err := f.Reals(ctx, list[i].VirtualKey)
		if err == nil {
			err = take(&list[i], reals)
		}
		if err != nil {
			return err
		}
		clear(reals)
	}
	return ctx.Err()
}

// Virtual implements Kernel.
func (f *Fake) Virtual(ctx context.Context, k VirtualKey) (Virtual, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.virtuals[k]; v != nil {
		return v.row, true, ctx.Err()
	}
	return Virtual{}, false, ctx.Err()
}

// Reals implements Kernel.
func (f *Fake) Reals(ctx context.Context, of VirtualKey) ([]Real, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.virtuals[of]
	if v == nil {
		return nil, ctx.Err()
	}
	var out []Real
	for _, at := range slices.SortedFunc(maps.Keys(v.reals), netip.AddrPort.Compare) {
		out = append(out, v.reals[at])
	}
	return out, ctx.Err()
}

// Schedulers returns the schedulers of Linux 6.x.
func Schedulers() []string {
	return []string{"rr", "wrr", "lc", "wlc", "sh", "mh", "dh", "sed", "nq", "lblc", "lblcr", "fo", "ovf", "twos"}
}

// PutVirtual implements Kernel.
func (f *Fake) PutVirtual(ctx context.Context, v Virtual) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(Schedulers(), v.Scheduler) {
		return fmt.Errorf("write virtual server %s with scheduler %s: %w", v.VirtualKey, v.Scheduler, unix.ENOENT)
	}
	if v.Port == 0 && v.Flags&Persistent == 0 || !v.Addr.IsValid() {
		return fmt.Errorf("write virtual server %s: %w", v.VirtualKey, unix.EINVAL)
	}
	if v.Flags&Persistent == 0 {
		v.Timeout = 0
	}
	at := f.virtuals[v.VirtualKey]
	if at == nil {
		at = &fakeVirtual{reals: map[netip.AddrPort]Real{}}
		f.virtuals[v.VirtualKey] = at
	}
	v.Wide = false
	at.row = v
	return ctx.Err()
}

// PutReal implements Kernel.
func (f *Fake) PutReal(ctx context.Context, of VirtualKey, r Real) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.virtuals[of]
	if v == nil {
		return fmt.Errorf("write real server %s of %s: %w", r.At, of, unix.ESRCH)
	}
	if r.At.Port() == 0 || r.At.Addr().Is4() != of.Addr.Is4() {
		return fmt.Errorf("write real server %s of %s: %w", r.At, of, unix.EINVAL)
	}
	now := v.reals[r.At] // its connections continue
	now.At, now.Weight, now.Limited, now.Method = r.At, r.Weight, false, 0
	v.reals[r.At] = now
	return ctx.Err()
}

// Connect sets the numbers of a real server's connections.
func (f *Fake) Connect(of VirtualKey, at netip.AddrPort, active, inactive uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.virtuals[of]; v != nil {
		r := v.reals[at]
		r.Active, r.Inactive = active, inactive
		v.reals[at] = r
	}
}

// Tunnel simulates another program: it adds a real server, of either family, that receives packets through a tunnel.
func (f *Fake) Tunnel(of VirtualKey, at netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.virtuals[of]; v != nil {
		v.reals[at] = Real{At: at, Weight: 1, Method: 2}
	}
}

// Spoil simulates another program: it changes the read-only fields of a virtual server and of its real servers.
func (f *Fake) Spoil(k VirtualKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.virtuals[k]
	if v == nil {
		return
	}
	v.row.Wide = v.row.Flags&Persistent != 0
	for at, r := range v.reals {
		r.Limited = true
		v.reals[at] = r
	}
}

// DelVirtual implements Kernel.
func (f *Fake) DelVirtual(ctx context.Context, k VirtualKey) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.virtuals, k)
	return ctx.Err()
}

// DelReal implements Kernel.
func (f *Fake) DelReal(ctx context.Context, of VirtualKey, at netip.AddrPort) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.virtuals[of]; v != nil {
		delete(v.reals, at)
	}
	return ctx.Err()
}

// SetTimeouts implements Kernel.
func (f *Fake) SetTimeouts(ctx context.Context, t Timeouts) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range []struct {
		to   *int64
		from int64
	}{{(*int64)(&f.Timeouts.TCP), int64(t.TCP)}, {(*int64)(&f.Timeouts.TCPFin), int64(t.TCPFin)}, {(*int64)(&f.Timeouts.UDP), int64(t.UDP)}} {
		if p.from > 0 {
			*p.to = p.from
		}
	}
	return ctx.Err()
}

// HasDevice implements Addresses.
func (f *Fake) HasDevice(ctx context.Context) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.device, ctx.Err()
}

// MakeDevice implements Addresses.
func (f *Fake) MakeDevice(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.device = true
	return ctx.Err()
}

// RemoveDevice implements Addresses.
func (f *Fake) RemoveDevice(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.device = false
	clear(f.addrs)
	return ctx.Err()
}

// List implements Addresses.
func (f *Fake) List(ctx context.Context) ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Keys(f.addrs), netip.Addr.Compare), ctx.Err()
}

// Has implements Addresses.
func (f *Fake) Has(ctx context.Context, a netip.Addr) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.addrs[a], ctx.Err()
}

// Add implements Addresses.
func (f *Fake) Add(ctx context.Context, a netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.device {
		return fmt.Errorf("add %s to %s: %w", a, Device, unix.ENODEV)
	}
	f.addrs[a] = true
	return ctx.Err()
}

// Remove implements Addresses.
func (f *Fake) Remove(ctx context.Context, a netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.addrs, a)
	return ctx.Err()
}

func index(six bool) int {
	if six {
		return 1
	}
	return 0
}

// Rule implements Routing.
func (f *Fake) Rule(ctx context.Context, six bool) (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.marks[index(six)], ctx.Err()
}

// SetRule implements Routing.
func (f *Fake) SetRule(ctx context.Context, six bool, mark uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.marks[index(six)] = mark
	return ctx.Err()
}

// Routes implements Routing.
func (f *Fake) Routes(ctx context.Context) ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Keys(f.routes), netip.Addr.Compare), ctx.Err()
}

// AddRoute implements Routing.
func (f *Fake) AddRoute(ctx context.Context, a netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes[a] = true
	return ctx.Err()
}

// RemoveRoute implements Routing.
func (f *Fake) RemoveRoute(ctx context.Context, a netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.routes, a)
	return ctx.Err()
}
