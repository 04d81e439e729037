package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Constants of linux/netfilter/ipset/ip_set.h that package unix lacks.
const (
	setProtocol   = 6
	setCmdList    = 7
	setAttrProto  = 1
	setAttrName   = 2
	setAttrADT    = 8
	setAttrPort   = 4
	subsystemSets = 6 // NFNL_SUBSYS_IPSET
)

// NodePort is a port that kube-proxy serves on the node's own addresses.
type NodePort struct {
	Protocol uint8
	Port     uint16
}

// Sets returns the names of kube-proxy's ipsets, and the NodePorts in them: kube-proxy keeps no other record of the virtual servers on
// the node's own addresses. A kernel without ipset has none. It reads the network namespace of the calling thread.
func Sets() (names []string, ports map[NodePort]bool, err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("open a netlink socket to ipset: %w", err)
	}
	defer conn.Close()
	e := netlink.NewAttributeEncoder()
	e.Uint8(setAttrProto, setProtocol)
	attrs, err := e.Encode()
	if err != nil {
		return nil, nil, err
	}
	list, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: subsystemSets<<8 | setCmdList, Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{unix.AF_INET, 0, 0, 0}, attrs...),
	})
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ENOENT):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("list ipsets: %w", err)
	}
	ports = map[NodePort]bool{}
	for _, m := range list {
		name, members, err := readSet(m.Data)
		if err != nil {
			return nil, nil, fmt.Errorf("read an ipset: %w", err)
		}
		if !isKubeProxys(name) {
			continue
		}
		if len(names) == 0 || names[len(names)-1] != name { // a large set is split into several messages
			names = append(names, name)
		}
		for _, p := range members {
			if protocol := protocolOf(name); protocol != 0 {
				ports[NodePort{protocol, p}] = true
			}
		}
	}
	return names, ports, nil
}

// protocolOf returns the protocol of the NodePorts in a set; 0 for a set of another kind.
func protocolOf(set string) uint8 {
	_, kind, _ := strings.Cut(set, "NODE-PORT-")
	switch strings.TrimPrefix(kind, "LOCAL-") {
	case "TCP":
		return unix.IPPROTO_TCP
	case "UDP":
		return unix.IPPROTO_UDP
	case "SCTP-HASH", "SCTP-HAS": // the name of IPv6 is truncated (longestSet)
		return unix.IPPROTO_SCTP
	}
	return 0
}

// readSet decodes one message of a list: the set's name, and the ports of its members.
func readSet(body []byte) (name string, ports []uint16, err error) {
	if len(body) < 4 {
		return "", nil, fmt.Errorf("an answer of ipset has %d bytes", len(body))
	}
	d, err := netlink.NewAttributeDecoder(body[4:])
	if err != nil {
		return "", nil, err
	}
	for d.Next() {
		switch d.Type() {
		case setAttrName:
			name = d.String()
		case setAttrADT:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					d.Nested(func(d *netlink.AttributeDecoder) error {
						for d.Next() {
							if b := d.Bytes(); d.Type() == setAttrPort && len(b) == 2 {
								ports = append(ports, binary.BigEndian.Uint16(b))
							}
						}
						return d.Err()
					})
				}
				return d.Err()
			})
		}
	}
	return name, ports, d.Err()
}
