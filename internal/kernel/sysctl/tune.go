package sysctl

import (
	"strconv"
	"time"
)

// The sysctls of kube-proxy that every mode sets.
const (
	routeLocalnet  = "net/ipv4/conf/all/route_localnet"
	conntrackMax   = "net/netfilter/nf_conntrack_max"
	tcpEstablished = "net/netfilter/nf_conntrack_tcp_timeout_established"
	tcpCloseWait   = "net/netfilter/nf_conntrack_tcp_timeout_close_wait"
	tcpBeLiberal   = "net/netfilter/nf_conntrack_tcp_be_liberal"
	udpTimeout     = "net/netfilter/nf_conntrack_udp_timeout"
	conntrackAcct  = "net/netfilter/nf_conntrack_acct"
	udpStream      = "net/netfilter/nf_conntrack_udp_timeout_stream"
)

// maxEntries is the limit of the scaling with the number of CPUs, as in kube-proxy: a full
// table of a million flows takes about 300 MB.
const maxEntries = 1 << 20

// Conntrack is the desired state of conntrack's settings; 0 keeps the actual value.
type Conntrack struct {
	MaxPerCore     int // 0 keeps the actual limit, whatever Min is
	Min            int
	TCPEstablished time.Duration
	TCPCloseWait   time.Duration
	TCPBeLiberal   bool
	UDP            time.Duration
	UDPStream      time.Duration
}

// Change is one setting whose actual value differed from the desired one. Err is the reason
// if it still does; the caller logs it and continues.
type Change struct {
	Name, From, To string
	Err            error
}

// ApplyConntrack ensures the settings and returns those that differed. It is
// idempotent. cores is the number of the node's CPUs.
func ApplyConntrack(s Sysctl, c Conntrack, cores int) []Change {
	var changes []Change
	set := func(name string, to int) {
		if ch, differs := ensure(s, name, to); differs {
			changes = append(changes, ch)
		}
	}
	if n := c.limit(cores); n > 0 {
		set(conntrackMax, n)
		if ch, differs := raise(s, HashSize, n/4); differs {
			changes = append(changes, ch)
		}
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{
		{tcpEstablished, c.TCPEstablished}, {tcpCloseWait, c.TCPCloseWait},
		{udpTimeout, c.UDP}, {udpStream, c.UDPStream},
	} {
		if t.d > 0 {
			set(t.name, int(t.d/time.Second))
		}
	}
	if c.TCPBeLiberal {
		set(tcpBeLiberal, 1)
	}
	return changes
}

// limit returns the maximum number of flows: max(Min, MaxPerCore x cores), where
// only the product is capped, as in kube-proxy.
func (c Conntrack) limit(cores int) int {
	if c.MaxPerCore <= 0 {
		return 0
	}
	scaled := c.MaxPerCore * cores
	if scaled > maxEntries {
		return maxEntries
	}
	return max(scaled, c.Min)
}

// EnsureRouteLocalnet lets packets to 127.0.0.0/8 be redirected to other hosts:
// without it the kernel drops NodePort traffic to 127.0.0.1 as martian. It returns
// the change made, nil if none was needed.
func EnsureRouteLocalnet(s Sysctl) *Change {
	if ch, differs := ensure(s, routeLocalnet, 1); differs {
		return &ch
	}
	return nil
}

// CountFlows lets conntrack count the packets of flows; flows from before are not counted.
// It returns the change made, nil if none was needed.
func CountFlows(s Sysctl) *Change {
	if ch, differs := ensure(s, conntrackAcct, 1); differs {
		return &ch
	}
	return nil
}

// CloseRouteLocalnet undoes EnsureRouteLocalnet: with it, and without a rule of the agent,
// every host on the link can reach programs that listen on loopback only. It returns the change
// made, nil if none was needed or the setting cannot be read.
func CloseRouteLocalnet(s Sysctl) *Change {
	if ch, differs := ensure(s, routeLocalnet, 0); differs && ch.From != "" {
		return &ch
	}
	return nil
}

// ensure writes only a value that differs: in a container the files are often read-only
// and the administrator has set them already.
func ensure(s Sysctl, name string, to int) (Change, bool) {
	ch := Change{Name: name, To: strconv.Itoa(to)}
	ch.From, ch.Err = s.Get(name)
	if ch.Err == nil && ch.From != ch.To {
		ch.Err = s.Set(name, ch.To)
	}
	return ch, ch.Err != nil || ch.From != ch.To
}

// raise is ensure for a setting whose actual value may be greater than the desired one.
func raise(s Sysctl, name string, to int) (Change, bool) {
	from, err := s.Get(name)
	if n, nerr := strconv.Atoi(from); err == nil && nerr == nil && n >= to {
		return Change{}, false
	}
	return ensure(s, name, to)
}
