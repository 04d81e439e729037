package flowlab

import (
	"bufio"
	"fmt"
	"net"
)

func hostOf(a net.Addr) string {
	host, _, _ := net.SplitHostPort(a.String()) // the kernel's own words
	return host
}

// listen answers each line, and each datagram, with the address and with whom it has seen.
func (l *Lab) listen(addr string) error {
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	l.Cleanup(func() { _, _ = tcp.Close(), udp.Close() })
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					if _, err := r.ReadString('\n'); err != nil {
						return
					}
					fmt.Fprintln(c, addr, hostOf(c.RemoteAddr()))
				}
			}()
		}
	}()
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo([]byte(addr+" "+hostOf(from)+"\n"), from)
		}
	}()
	return nil
}
