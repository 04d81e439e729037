package takeover

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/netlab"
)

// Room returns the maximum number of connections that a host's kernel tracks.
func Room(t *testing.T, h *netlab.Host) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(Shell(t, h, "cat /proc/sys/net/netfilter/nf_conntrack_max")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Fill fills a host's connection table with entries that the kernel does not evict for new ones: UDP flows that are marked as replied and assured.
func Fill(t *testing.T, h *netlab.Host, most int) {
	t.Helper()
	const batch, rounds = 256, 3 // flows in one datagram; further rounds refill entries that became free in the first
	err := h.Do(func() error {
		s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(s) }()
		for i := 0; i < rounds*most; i += batch {
			var b []byte
			for n := range batch {
				b = appendFlow(b, uint32(i+n))
			}
			if err := unix.Sendto(s, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
				return fmt.Errorf("flow %d: %w", i, err)
			}
			if i >= most && i%most < batch && Count(t, h) >= most {
				return nil
			}
		}
		return fmt.Errorf("%d of %d flows", Count(t, h), most)
	})
	if err != nil {
		t.Fatal("fill the table of connections:", err)
	}
}

// Count returns the number of connections that a host's kernel tracks now.
func Count(t *testing.T, h *netlab.Host) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(Shell(t, h, "cat /proc/sys/net/netfilter/nf_conntrack_count")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// appendFlow appends the netlink request that creates the flow of a number. The constants are those of linux/netfilter/nfnetlink_conntrack.h.
func appendFlow(b []byte, number uint32) []byte {
	const create, lasting = 1 << 8, 1<<1 | 1<<2 | 1<<3 // IPCTNL_MSG_CT_NEW; IPS_SEEN_REPLY, IPS_ASSURED, IPS_CONFIRMED
	client, port := binary.BigEndian.AppendUint32(nil, 0x0a_c8_00_01+number/50_000), binary.BigEndian.AppendUint16(nil, uint16(1_000+number%50_000))
	server, other := []byte{10, 201, 0, 1}, []byte{0, 9}
	tuple := func(src, sport, dst, dport []byte) []byte {
		return append(nested(1, append(attribute(1, src), attribute(2, dst)...)),
			nested(2, append(append(attribute(1, []byte{unix.IPPROTO_UDP}), attribute(2, sport)...), attribute(3, dport)...))...)
	}
	body := []byte{unix.AF_INET, 0, 0, 0}
	body = append(body, nested(1, tuple(client, port, server, other))...)
	body = append(body, nested(2, tuple(server, other, client, port))...)
	body = append(body, attribute(7, binary.BigEndian.AppendUint32(nil, 600))...) // seconds
	body = append(body, attribute(3, binary.BigEndian.AppendUint32(nil, lasting))...)
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, create)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_CREATE)
	b = binary.NativeEndian.AppendUint64(b, 0) // sequence number and port id
	return append(b, body...)
}

func attribute(kind uint16, data []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func nested(kind uint16, data []byte) []byte { return attribute(kind|unix.NLA_F_NESTED, data) }
