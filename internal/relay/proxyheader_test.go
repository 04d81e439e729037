package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
)

// readProxyHeader is a second reading of the specification: it takes a header from a
// stream, byte by byte as it is laid down there, and nothing more.
func readProxyHeader(r io.Reader) (client, at netip.AddrPort, err error) {
	var head [16]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return client, at, err
	}
	if [12]byte(head[:12]) != [12]byte{0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a} {
		return client, at, fmt.Errorf("signature % x", head[:12])
	}
	if version, command := head[12]>>4, head[12]&15; version != 2 || command != 1 {
		return client, at, fmt.Errorf("version %d, command %d", version, command)
	}
	wide := 4
	switch head[13] {
	case 1<<4 | 1: // AF_INET, STREAM
	case 2<<4 | 1: // AF_INET6, STREAM
		wide = 16
	default:
		return client, at, fmt.Errorf("family and transport %#x", head[13])
	}
	body := make([]byte, int(head[14])<<8|int(head[15]))
	if len(body) != 2*wide+4 {
		return client, at, fmt.Errorf("%d bytes of addresses", len(body))
	}
	if _, err := io.ReadFull(r, body); err != nil {
		return client, at, err
	}
	src, ok1 := netip.AddrFromSlice(body[:wide])
	dst, ok2 := netip.AddrFromSlice(body[wide : 2*wide])
	if !ok1 || !ok2 {
		return client, at, errors.New("no address")
	}
	port := func(b []byte) uint16 { return uint16(b[0])*256 + uint16(b[1]) }
	return netip.AddrPortFrom(src, port(body[2*wide:])), netip.AddrPortFrom(dst, port(body[2*wide+2:])), nil
}

// An endpoint that asks for it hears of its client, its own bytes follow, and nobody
// else's endpoint gets a header.
func TestProxyHeader(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, wish := range []bool{true, false} {
			t.Run(fmt.Sprint(host, " ", wish), func(t *testing.T) {
				r := newRelay(t, Params{})
				b := tcpServer(t, host, func(c *net.TCPConn) {
					defer c.Close() //nolint:errcheck // of the test
					if wish {
						client, at, err := readProxyHeader(c)
						_, _ = fmt.Fprintln(c, client, at, err)
					}
					all, _ := io.ReadAll(c)
					_, _ = c.Write(all)
				})
				f := frontend(nobody(), b) // the one that refuses is passed over all the same
				f.Relay.ProxyProtocol = wish
				at := open(t, r.Target(f), host, model.TCP)
				for range 10 {
					c, err := dial(t, host, at)
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close() //nolint:errcheck // read to its end
					want := "hello"
					if wish {
						want = fmt.Sprintln(c.LocalAddr(), at, nil) + want
					}
					_, _ = io.WriteString(c, "hello")
					_ = c.CloseWrite()
					if got, err := io.ReadAll(c); err != nil || string(got) != want {
						t.Fatalf("%q, %v, want %q", got, err, want)
					}
				}
			})
		}
	}
}

// FuzzProxyHeader: whatever the addresses are, the other reading finds them again.
func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte{192, 0, 2, 1}, []byte{10, 96, 0, 10}, uint16(1), uint16(65535))
	f.Add(netip.MustParseAddr("fd00::1").AsSlice(), netip.MustParseAddr("2001:db8::2").AsSlice(), uint16(0), uint16(443))
	f.Add(netip.MustParseAddr("::ffff:192.0.2.1").AsSlice(), []byte{127, 0, 0, 1}, uint16(80), uint16(81))
	f.Fuzz(func(t *testing.T, a, b []byte, p, q uint16) {
		src, ok1 := netip.AddrFromSlice(a)
		dst, ok2 := netip.AddrFromSlice(b)
		src, dst = src.Unmap(), dst.Unmap()
		if !ok1 || !ok2 || src.Is4() != dst.Is4() {
			t.Skip("not the two addresses of one connection") // no connection has such ones
		}
		in := io.MultiReader(bytes.NewReader(proxyHeader(netip.AddrPortFrom(src, p), netip.AddrPortFrom(dst, q))), bytes.NewReader([]byte("rest")))
		client, at, err := readProxyHeader(in)
		if err != nil || client != netip.AddrPortFrom(src, p) || at != netip.AddrPortFrom(dst, q) {
			t.Errorf("%s %s, %v", client, at, err)
		}
		if rest, err := io.ReadAll(in); err != nil || string(rest) != "rest" {
			t.Errorf("after the header: %q, %v", rest, err)
		}
	})
}
