package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/patience"
)

// slowReaders opens the connections of one client that asks and never reads. Its windows are small.
func slowReaders(t *testing.T, r *rig, n int, queries ...*dns.Msg) {
	t.Helper()
	small := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Control: smallWindow}
	for range n {
		conn, err := small.DialContext(t.Context(), "tcp4", r.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c := &dns.Conn{Conn: conn}
		for _, m := range queries {
			m.Id = dns.Id()
			if err := c.WriteMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSlowReaderDelaysNobody: a client that does not read its TCP answers delays no other client's: not those of parked
// queries, and not those of queries that wait for the same answer of another server.
func TestSlowReaderDelaysNobody(t *testing.T) {
	release := make(chan struct{})
	up := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) {
		if req.Question[0].Name != "same.example.org." {
			reply(w, req)
			return
		}
		<-release
		m := new(dns.Msg)
		m.SetReply(req)
		if m.Truncated = w.RemoteAddr().Network() == "udp"; !m.Truncated {
			for i := range 240 {
				rr, _ := dns.NewRR(fmt.Sprintf("same.example.org. 0 IN TXT %0250d", i))
				m.Answer = append(m.Answer, rr)
			}
		}
		_ = w.WriteMsg(m)
	})
	r := newRig(t, func(c *Config) { c.StatusForAll = true; c.Upstreams = []netip.AddrPort{up} })
	list := make([]model.Endpoint, 451)
	for i := range list {
		list[i] = endpoint(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String(), fmt.Sprintf("a-rather-long-hostname-of-this-endpoint-%d", i))
	}
	slow := model.ServiceKey{Namespace: "d", Name: "slow"}
	r.store.Apply([]model.Event{serviceEvent(model.Service{Key: slow, Headless: true, Extras: model.Extras{DNSPark: ptr(MaxPark)}})})
	var big []model.ServiceKey
	for i := range 3 {
		big = append(big, model.ServiceKey{Namespace: "d", Name: fmt.Sprint("big", i)})
		r.store.Apply([]model.Event{serviceEvent(model.Service{Key: big[i], Headless: true}), sliceEvent(big[i], list[1:]...)})
		status := question("_status."+big[i].Name+".d.svc.cluster.local", dns.TypeTXT)
		status.SetEdns0(1232, false)
		q := StatusQuestion{Pods: len(list), Wait: MaxStatusWait, List: true}
		status.IsEdns0().Option = []dns.EDNS0{q.Option()}
		slowReaders(t, r, maxPerPair/2, status, status)
	}
	same := question("same.example.org", dns.TypeTXT)
	slowReaders(t, r, maxConnsPerClient-3*maxPerPair/2, same, same, same)
	r.waitParked(t, 3*maxPerPair)

	c := dns.Client{Timeout: patience.Of(5 * time.Second)} // after which resolvers give up
	var asked sync.WaitGroup
	defer asked.Wait()
	for name, qtype := range map[string]uint16{"late.slow.d.svc.cluster.local": dns.TypeA, "same.example.org": dns.TypeTXT} {
		asked.Go(func() {
			if _, _, err := c.Exchange(question(name, qtype), r.addr.String()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	r.waitParked(t, 3*maxPerPair+1)
	for _, key := range big {
		r.store.Apply([]model.Event{sliceEvent(key, list...)})
	}
	r.store.Apply([]model.Event{sliceEvent(slow, endpoint("10.2.0.1", "late"))})
	close(release)
}

func smallWindow(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 2048),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 536)) // the peer's buffer grows with it
	}); e != nil {
		return e
	}
	return err
}
