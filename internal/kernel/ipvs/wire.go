package ipvs

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Constants of linux/ip_vs.h that package unix lacks.
const (
	familyName = "IPVS"
	version    = 1

	genericHeader = 4 // struct genlmsghdr

	cmdNewService = 1
	cmdSetService = 2
	cmdDelService = 3
	cmdGetService = 4
	cmdNewDest    = 5
	cmdSetDest    = 6
	cmdDelDest    = 7
	cmdGetDest    = 8
	cmdSetConfig  = 12

	attrService = 1
	attrDest    = 2
	attrTCP     = 4
	attrTCPFin  = 5
	attrUDP     = 6

	svcFamily   = 1
	svcProtocol = 2
	svcAddr     = 3
	svcPort     = 4
	svcMark     = 5
	svcSched    = 6
	svcFlags    = 7
	svcTimeout  = 8
	svcNetmask  = 9

	destAddr     = 1
	destPort     = 2
	destMethod   = 3
	destWeight   = 4
	destUpper    = 5
	destLower    = 6
	destActive   = 7
	destInactive = 8
	destFamily   = 11

	methodMask = 7 // IP_VS_CONN_F_FWD_MASK; 0 is IP_VS_CONN_F_MASQ
)

func family(a netip.Addr) uint16 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
