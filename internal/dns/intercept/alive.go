package intercept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// alive are the sockets whose existence makes the kernel redirect queries for one
// address. Nothing arrives at them: the queries are readdressed first.
type alive struct{ udp, tcp io.Closer }

func openAlive(ctx context.Context, vip netip.Addr) (*alive, error) {
	c := net.ListenConfig{Control: transparent(vip)}
	c.SetMultipathTCP(false) // Go's default; its sockets take IP_TRANSPARENT on newer kernels only
	family := "6"
	if vip.Is4() {
		family = "4"
	}
	addr := netip.AddrPortFrom(vip, 53).String()
	udp, err := c.ListenPacket(ctx, "udp"+family, addr)
	if err != nil {
		return nil, explain(err)
	}
	tcp, err := c.Listen(ctx, "tcp"+family, addr)
	if err != nil {
		return nil, errors.Join(explain(err), udp.Close())
	}
	return &alive{udp, tcp}, nil
}

func explain(err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("another server on this node listens on the address of the cluster DNS (NodeLocal DNSCache?): %w", err)
	}
	return fmt.Errorf("bind the address of the cluster DNS: %w", err)
}

func (a *alive) close() {
	if a != nil {
		_ = a.udp.Close()
		_ = a.tcp.Close()
	}
}

// transparent lets a socket be bound to an address that is not this host's.
func transparent(vip netip.Addr) func(string, string, syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if !vip.Is4() {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); e != nil {
			return e
		}
		return err
	}
}
