package ipvs

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device holds every Service address in kube-proxy's ipvs mode.
const Device = "kube-ipvs0"

// HasDevice reports whether the network namespace of the calling thread has Device.
func HasDevice() (bool, error) {
	_, err := netlink.LinkByName(Device)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find %s: %w", Device, err)
	}
	return true, nil
}

// RemoveDevice deletes Device; a missing device is no error.
func RemoveDevice() error {
	l, err := netlink.LinkByName(Device)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", Device, err)
	}
	return nil
}

// longestSet is the maximum length of an ipset's name (IPSET_MAXNAMELEN, which includes the NUL); kube-proxy truncates longer names.
const longestSet = 31

// isKubeProxys reports whether an ipset has a name of kube-proxy's; those of IPv6 have the prefix 6-.
func isKubeProxys(name string) bool {
	for _, known := range [...]string{"LOOP-BACK", "CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "LOAD-BALANCER", "LOAD-BALANCER-FW",
		"LOAD-BALANCER-LOCAL", "LOAD-BALANCER-SOURCE-IP", "LOAD-BALANCER-SOURCE-CIDR", "NODE-PORT-TCP", "NODE-PORT-LOCAL-TCP", "NODE-PORT-UDP",
		"NODE-PORT-LOCAL-UDP", "NODE-PORT-SCTP-HASH", "NODE-PORT-LOCAL-SCTP-HASH", "HEALTH-CHECK-NODE-PORT", "IPVS-IPS"} {
		for _, full := range [...]string{"KUBE-" + known, "KUBE-6-" + known} {
			if name == full[:min(len(full), longestSet)] {
				return true
			}
		}
	}
	return false
}

// RemoveSet destroys an ipset; the rules that refer to it must be deleted first.
func RemoveSet(name string) error {
	if err := netlink.IpsetDestroy(name); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove ipset %s: %w", name, err)
	}
	return nil
}

// HasRule reports whether the network namespace of the calling thread has a routing rule for packets to taken ports, of either family.
func HasRule() (bool, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("open a netlink socket to the kernel's routing rules: %w", err)
	}
	defer h.Close()
	l := Link{h: h}
	four, err := l.rules(false)
	six, err6 := l.rules(true)
	return len(four)+len(six) > 0, errors.Join(err, err6)
}
