package main

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// window is how many datagrams of a client wait for their answers.
const window = 32

// echo returns each datagram to its sender.
func echo(at string) error {
	c, err := net.ListenPacket("udp", at)
	if err != nil {
		return err
	}
	for buf := make([]byte, 64<<10); ; {
		n, from, err := c.(*net.UDPConn).ReadFromUDPAddrPort(buf)
		if err != nil {
			return err
		}
		_, _ = c.(*net.UDPConn).WriteToUDPAddrPort(buf[:n], from)
	}
}

// datagrams runs some clients that send datagrams and receive answers, and counts the
// answers.
func datagrams(to string, length time.Duration, clients, size int) (answers int64, took time.Duration, err error) {
	var all sync.WaitGroup
	var sum atomic.Int64
	begin := time.Now()
	for range clients {
		c, err := net.Dial("udp", to)
		if err != nil {
			return 0, 0, err
		}
		all.Go(func() {
			defer c.Close() //nolint:errcheck // of the bench
			out, in := make([]byte, size), make([]byte, 64<<10)
			for waiting := 0; time.Since(begin) < length; {
				for ; waiting < window; waiting++ {
					_, _ = c.Write(out)
				}
				_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				for waiting > window/2 {
					if _, err := c.Read(in); os.IsTimeout(err) { // the other answers are lost
						waiting = 0
					} else if err == nil {
						waiting--
						sum.Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	return sum.Load(), time.Since(begin), nil
}
