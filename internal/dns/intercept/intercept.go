package intercept

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Config configures an Intercept.
type Config struct {
	Kernel nft.Kernel // used by Run's goroutine only: it must be a Conn of its own
	// Servers are addresses of this node's server that serve redirected queries
	// and nothing else, at most one of each family (see Servers).
	Servers []netip.AddrPort
	// VIPs returns the present addresses of the cluster DNS Service.
	VIPs func() []netip.Addr
	// Known reports whether the cluster's Services have been read; nil = they have.
	Known func() bool
	// Fit returns why the server should not be used although it answers; nil = always fit.
	Fit func() error
	// Question is a name with a TXT record that no other server has; it is asked
	// each second: "_status.cluster.local.".
	Question string
	Active   func(bool) // called each second with whether queries are being redirected; may be nil
	Log      *slog.Logger
}

// Port is where redirected queries arrive: a port of its own distinguishes them from
// those that a pod sends to the server's address itself.
const Port = 10053

// Servers returns the addresses to listen on, in addition to addrs, for redirected
// queries: one of each family, at Port.
func Servers(addrs []netip.AddrPort) (out []netip.AddrPort) {
	for _, a := range addrs {
		same := func(o netip.AddrPort) bool { return o.Addr().Is4() == a.Addr().Is4() }
		if !a.Addr().IsLoopback() && !slices.ContainsFunc(out, same) {
			out = append(out, netip.AddrPortFrom(a.Addr(), Port))
		}
	}
	return out
}

// Intercept redirects queries. Make it with New, then call Run once.
type Intercept struct {
	cfg       Config
	noSocket  bool // the kernel lacks the socket expression: only the element's timeout is left
	installed []target
	path      *path
	alive     map[netip.Addr]*alive
	said      *string // the last reason that was reported, "" for none; nil before the first
	began     time.Time
	done      chan struct{} // closed when Run has returned
}

// New returns an Intercept; it does nothing yet.
func New(c Config) *Intercept {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Known == nil {
		c.Known = func() bool { return true }
	}
	if c.Fit == nil {
		c.Fit = func() error { return nil }
	}
	if c.Active == nil {
		c.Active = func(bool) {}
	}
	return &Intercept{cfg: c, alive: map[netip.Addr]*alive{}, began: time.Now(), done: make(chan struct{})}
}

const (
	interval = time.Second
	// beginning is how long after the start no reason is reported: an input that is only
	// not ready yet would be reported at every start.
	beginning = 3 * time.Second
)

// errNotRead is returned before the first list; it differs from a Service that has no address.
var errNotRead = errors.New("the Services of the cluster have not been read yet")

// Run redirects until ctx ends; then it removes the tables. A failure is reported
// once and retried.
func (i *Intercept) Run(ctx context.Context) error {
	defer close(i.done)
	next := time.NewTimer(interval)
	defer next.Stop()
	for {
		err := i.step(ctx)
		i.cfg.Active(err == nil)
		i.say(err)
		if next.Reset(interval); errors.Is(err, errNotRead) {
			next.Reset(interval / 10) // so that queries are taken soon after the first list
		}
		select {
		case <-ctx.Done():
			i.cfg.Active(false)
			i.release()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			return Cleanup(ctx, i.cfg.Kernel)
		case <-next.C:
		}
	}
}

// Outlive returns a context for the server that redirected queries go to: it ends once
// ctx has ended and Run has returned. If the server ended at the same time as Run, each
// query would be lost until the redirection is gone, and Run may just be waiting for an
// answer. stop must be called.
func (i *Intercept) Outlive(ctx context.Context) (_ context.Context, stop func()) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, func() {
		<-i.done
		cancel()
	})
	return out, func() { release(); cancel() }
}

func (i *Intercept) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if i.said != nil && *i.said == text || errors.Is(err, context.Canceled) {
		return
	}
	if i.said == nil && err != nil && time.Since(i.began) < beginning {
		return
	}
	if i.said = &text; err != nil {
		i.cfg.Log.Warn("DNS queries are not intercepted", "reason", err)
		return
	}
	i.cfg.Log.Info("DNS queries are intercepted", "service", i.addrs())
}

func (i *Intercept) addrs() (list []string) {
	for _, t := range i.installed {
		list = append(list, t.vip.String())
	}
	return list
}

// step reconciles the kernel with the inputs and renews the elements.
func (i *Intercept) step(ctx context.Context) error {
	if !i.cfg.Known() { // before VIPs are read: they may come in between
		return errNotRead
	}
	want := i.targets()
	if !slices.Equal(want, i.installed) {
		if err := i.install(ctx, want); err != nil {
			return err
		}
	}
	if len(want) == 0 {
		return errors.New("the cluster DNS Service has no address of an IP family that this node's server listens on")
	}
	if err := i.cfg.Fit(); err != nil {
		i.release()
		return err
	}
	for _, t := range want {
		if err := i.beat(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (i *Intercept) beat(ctx context.Context, t target) error {
	if i.alive[t.vip] == nil {
		a, err := openAlive(ctx, t.vip)
		if err != nil {
			return err
		}
		i.alive[t.vip] = a
	}
	err := t.ask(i.path, i.cfg.Question)
	if err == nil {
		return nil
	}
	if intact, e := i.intact(ctx, t); e == nil && !intact {
		i.installed = nil // repaired at the next step
		return errNoTable
	}
	return err
}

// intact reports whether the table and the devices are there.
func (i *Intercept) intact(ctx context.Context, t target) (bool, error) {
	tables, err := i.cfg.Kernel.Tables(ctx)
	if err != nil {
		return false, err
	}
	there := slices.ContainsFunc(tables, func(have nft.Table) bool { return have.Ref == tableOf(t.family()) })
	return there && i.path.there(), nil
}

// targets pairs the Service's addresses with the server's, by family.
func (i *Intercept) targets() (out []target) {
	for _, vip := range i.cfg.VIPs() {
		for _, s := range i.cfg.Servers {
			if s.Addr().Is4() == vip.Is4() {
				out = append(out, target{vip, s})
				break
			}
		}
	}
	return out
}

// install replaces the tables.
func (i *Intercept) install(ctx context.Context, want []target) error {
	i.release()
	err := i.commit(ctx, want)
	if !i.noSocket && isAny(err, unix.ENOENT, unix.EOPNOTSUPP) {
		i.noSocket = true
		i.cfg.Log.Info("this kernel has no nft_socket: after a crash of the agent, queries are lost for up to 3 s")
		err = i.commit(ctx, want)
	}
	if err != nil {
		i.installed = nil
		return fmt.Errorf("redirect DNS queries: %w", err)
	}
	var vips []netip.Addr
	for _, t := range want {
		vips = append(vips, t.vip)
	}
	if i.path, err = openPath(vips); err != nil {
		i.installed = nil
		return fmt.Errorf("query this node's DNS server on the path of pods: %w", err)
	}
	i.installed = want
	return nil
}

func isAny(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}

func (i *Intercept) commit(ctx context.Context, want []target) error {
	var b nft.Batch
	families := []nft.Family{nft.IPv4, nft.IPv6}
	for _, f := range families {
		drop(&b, f)
	}
	for _, t := range want {
		install(&b, t, !i.noSocket)
	}
	_, err := i.cfg.Kernel.Commit(ctx, &b)
	return err
}

// release closes the sockets: from here on no query is taken.
func (i *Intercept) release() {
	for vip, a := range i.alive {
		a.close()
		delete(i.alive, vip)
	}
}

// Cleanup removes the tables and the devices. It needs no state of the process that made
// them, and is idempotent.
func Cleanup(ctx context.Context, k nft.Kernel) error {
	return errors.Join(removeTables(ctx, k), removePath())
}

func removeTables(ctx context.Context, k nft.Kernel) error {
	tables, err := k.Tables(ctx)
	if err != nil {
		return fmt.Errorf("clean up DNS redirection: %w", err)
	}
	var b nft.Batch
	for i := range tables {
		if ref := tables[i].Ref; ref == tableOf(nft.IPv4) || ref == tableOf(nft.IPv6) {
			b.DelTable(ref)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if _, err := k.Commit(ctx, &b); err != nil {
		return fmt.Errorf("clean up DNS redirection: %w", err)
	}
	return nil
}
