package intercept

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// askTimeout is how long the server may take to answer the agent's question.
const askTimeout = 900 * time.Millisecond

var (
	errSilent = errors.New("this node's DNS server does not answer")
	errPath   = errors.New("this node's DNS server answers the node, but not queries that arrive on a network device like those of pods: " +
		"allow UDP and TCP to port 10053 of the server's address in the host's firewall, also on the device " + podDevice)
	errNoTable = errors.New("another program removed the nftables table of the DNS redirection")
)

// ask sends one question to the server, over the path of a pod's query. The answer
// renews the element in the kernel on its way out. ask checks that there was an answer,
// and that it came from this server: no other server has the record.
func (t target) ask(p *path, question string) error {
	m := new(dns.Msg)
	m.SetQuestion(question, dns.TypeTXT)
	query, err := m.Pack()
	if err != nil {
		return fmt.Errorf("query this node's DNS server: %w", err)
	}
	from := netip.AddrPortFrom(asker(t.vip), uint16(1024+rand.IntN(60000)))
	to := netip.AddrPortFrom(t.vip, 53)
	s, err := openRaw(p.ask, t.vip.Is4())
	if err != nil {
		return err
	}
	defer s.close()
	out := datagram{from, to, query}
	if err := s.send(out.frame(askerMAC(), p.pod)); err != nil {
		return err
	}
	for end := time.Now().Add(askTimeout); ; {
		b, err := s.receive(time.Until(end))
		if err != nil {
			return t.explain(question)
		}
		d, ok := readDatagram(b)
		var r dns.Msg
		if !ok || d.to != from || d.from != to || r.Unpack(d.data) != nil || r.Id != m.Id || !r.Response {
			continue
		}
		if r.Rcode != dns.RcodeSuccess || len(r.Answer) == 0 {
			return fmt.Errorf("this node's DNS server answered %s", dns.RcodeToString[r.Rcode])
		}
		return nil
	}
}

// explain returns an error that states whether the server or the path does not answer.
func (t target) explain(question string) error {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.server.Addr(), 0)))
	if err != nil {
		return errSilent
	}
	defer conn.Close()
	m := new(dns.Msg)
	m.SetQuestion(question, dns.TypeTXT)
	query, err := m.Pack()
	if err != nil {
		return errSilent
	}
	_ = conn.SetDeadline(time.Now().Add(askTimeout))
	if _, err := conn.WriteToUDPAddrPort(query, t.server); err != nil {
		return errSilent
	}
	buf := make([]byte, 1500)
	if _, _, err := conn.ReadFromUDPAddrPort(buf); err != nil {
		return errSilent
	}
	return errPath
}

// raw sends and receives frames on one device.
type raw struct{ fd, device int }

func openRaw(device int, v4 bool) (*raw, error) {
	proto := uint16(unix.ETH_P_IPV6)
	if v4 {
		proto = unix.ETH_P_IP
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket to query this node's DNS server (is CAP_NET_RAW missing?): %w", err)
	}
	s := &raw{fd, device}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto<<8 | proto>>8, Ifindex: device}); err != nil {
		s.close()
		return nil, fmt.Errorf("listen on the device %s: %w", askDevice, err)
	}
	return s, nil
}

func (s *raw) close() { _ = unix.Close(s.fd) }

func (s *raw) send(frame []byte) error {
	if err := unix.Sendto(s.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: s.device}); err != nil {
		return fmt.Errorf("send on the device %s: %w", askDevice, err)
	}
	return nil
}

// receive waits for one frame, for at most d.
func (s *raw) receive(d time.Duration) ([]byte, error) {
	if d <= 0 {
		return nil, unix.EAGAIN
	}
	tv := unix.NsecToTimeval(int64(d))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return nil, err
	}
	b := make([]byte, 2048)
	n, _, err := unix.Recvfrom(s.fd, b, 0)
	if errors.Is(err, unix.EINTR) {
		return nil, nil // read again: the caller watches the time
	}
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}
