package relay

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// unsent is how many bytes the peer's kernel has not acknowledged.
func unsent(c *net.TCPConn) (n int) {
	raw, err := c.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	return n
}

// What an endpoint has said before it resets a connection reaches the client, whichever call
// notices the reset first: a write while the client still sends, or a read. Then the client
// is reset (envoy#45190).
func TestEarlyAnswerArrives(t *testing.T) {
	for _, c := range []struct {
		name         string
		times, bytes int
		sends, waits bool // the client sends all the time; it reads only after the reset
	}{
		{"a client that sends", 40, 20_000, true, false},
		{"a client that sends and reads later", 5, 300_000, true, true},
		{"a client that reads later", 5, 300_000, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRelay(t, Params{})
			closed := make(chan struct{}, 1)
			answer := bytes.Repeat([]byte("fairlead"), c.bytes/8)
			at := open(t, r.Target(frontend(tcpServer(t, "127.0.0.1", func(s *net.TCPConn) {
				_, _ = io.ReadFull(s, make([]byte, 10))
				_, _ = s.Write(answer)
				for end := time.Now().Add(limit()); c.waits && unsent(s) > 0 && time.Now().Before(end); {
					time.Sleep(time.Millisecond) // between two looks
				}
				_ = s.Close() // a reset, for it has not read all
				closed <- struct{}{}
			}))), "127.0.0.1", model.TCP)
			for i := range c.times {
				client, err := dial(t, "127.0.0.1", at)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = client.Write(make([]byte, 4000))
				done := make(chan struct{})
				go func() {
					defer close(done)
					for c.sends {
						if _, err := client.Write(make([]byte, 20_000)); err != nil {
							return
						}
					}
				}()
				<-closed
				got, _ := io.ReadAll(client) // the reset may have been reported to the writer
				if !bytes.Equal(got, answer) {
					t.Fatalf("connection %d: %d of %d bytes arrive", i, len(got), len(answer))
				}
				_ = client.Close()
				<-done
			}
			eventually(t, func() error {
				if n := r.Counts(); n.Connections+n.Moving != 0 || n.Stalled != 0 {
					return fmt.Errorf("left behind: %+v", n)
				}
				return nil
			})
		})
	}
}
