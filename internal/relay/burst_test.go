package relay

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// Whatever comes in goes out: the same datagrams in the same order, in bursts that the
// kernel takes.
func FuzzBurst(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		rng := rand.New(rand.NewPCG(a, b))
		var want, got [][]byte
		x := burst{buf: make([]byte, burstBuffer)}
		x.send = func(b []byte, size int) {
			if len(b) > size && (len(b) > burstBytes || (len(b)+size-1)/size > burstCount) {
				t.Fatalf("a burst of %d bytes in datagrams of %d", len(b), size)
			}
			for first := true; first || len(b) > 0; first = false {
				n := min(size, len(b))
				got, b = append(got, bytes.Clone(b[:n])), b[n:]
			}
		}
		size := 0
		for range 120 {
			if rng.IntN(16) == 0 {
				size = []int{0, 1, 100, 1200, 1472, 9000, 32000, 65507}[rng.IntN(8)]
			}
			n := size
			if rng.IntN(18) == 0 {
				n = rng.IntN(65508)
			}
			d := make([]byte, n)
			for i := range d {
				d[i] = byte(i + len(want))
			}
			copy(x.room(), d)
			x.add(n)
			want = append(want, d)
			if rng.IntN(30) == 0 {
				x.flush()
			}
		}
		x.flush()
		if len(got) != len(want) {
			t.Fatalf("%d datagrams of %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(want[i], got[i]) {
				t.Fatalf("datagram %d of %d bytes goes out as %d bytes", i, len(want[i]), len(got[i]))
			}
		}
	})
}

// Bursts of datagrams, of one size and of several, of clients in turn, come back as they
// were, with the kernel's help and without.
func TestUDPBursts(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, how := range []string{"cut", "single", "cut, but too large for the path"} {
			t.Run(host+" "+how, func(t *testing.T) {
				r := newRelay(t, Params{})
				cut, more := how != "single", 0
				if strings.HasSuffix(how, "path") {
					was := setMTU(t, 1500)
					t.Cleanup(func() { setMTU(t, was) })
					more = 2000
				}
				if cut && !r.cuts {
					t.Skip("this kernel cuts no bursts (UDP_SEGMENT, Linux 4.18)")
				}
				r.cuts = cut
				pc, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = pc.Close() })
				go func() {
					for buf := make([]byte, maxDatagram); ; {
						n, from, err := pc.ReadFrom(buf)
						if err != nil {
							return
						}
						_, _ = pc.WriteTo(buf[:n], from)
					}
				}()
				at := open(t, r.Target(frontend(backend(pc.LocalAddr().(*net.UDPAddr).AddrPort()))), host, model.UDP)
				clients := []udpClient{newUDPClient(t, at), newUDPClient(t, at)}
				for round := range 60 {
					size := 4 + more + 300*(round%5)
					for i := range 8 {
						for c := range clients {
							bounce(t, clients[c], round*8+i, size+(i/3)*c)
						}
					}
					for c := range clients {
						returns(t, clients[c], round*8, 8)
					}
				}
			})
		}
	}
}

// setMTU sets the MTU of the loopback device, and returns the one before.
func setMTU(t *testing.T, bytes uint32) (was uint32) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was sent
	req, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFMTU, req); err != nil {
		t.Fatal(err)
	}
	was = req.Uint32()
	req.SetUint32(bytes)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFMTU, req); err != nil {
		t.Fatal(err)
	}
	return was
}

func bounce(t *testing.T, c udpClient, number, size int) {
	t.Helper()
	if _, err := c.Write(numbered(number, size)); err != nil {
		t.Fatal(err)
	}
}

func numbered(number, size int) []byte {
	out := bytes.Repeat([]byte{byte(size), byte(number)}, size)[:size]
	binary.BigEndian.PutUint32(out, uint32(number))
	return out
}

// returns waits for the answers to some datagrams, which must be whole. One may get lost
// where a socket's buffer is full, which so few do not fill.
func returns(t *testing.T, c udpClient, from, many int) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(limit()))
	buf := make([]byte, maxDatagram)
	for i := range many {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatalf("answer %d: %v", from+i, err)
		}
		if !bytes.Equal(buf[:n], numbered(from+i, n)) {
			t.Fatalf("answer %d is % x... of %d bytes", from+i, buf[:min(n, 8)], n)
		}
	}
}
