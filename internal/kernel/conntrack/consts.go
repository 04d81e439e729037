package conntrack

// Names and values of linux/netfilter/nfnetlink_conntrack.h, which x/sys/unix lacks.
const (
	msgNew    = 1 << 8 // NFNL_SUBSYS_CTNETLINK<<8 | IPCTNL_MSG_CT_NEW
	msgGet    = 1<<8 | 1
	msgDelete = 1<<8 | 2

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4
	ctaTimeout    = 7
	ctaCountOrig  = 9
	ctaCountReply = 10
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25
	ctaStatusMask = 26

	ctaCountPackets = 1
	ctaCountBytes   = 2

	ctaProtoInfoTCP      = 1
	ctaProtoInfoTCPState = 1

	tcpSynSent = 1
	tcpClose   = 8

	statusSeenReply = 1 << 1  // IPS_SEEN_REPLY: a packet of the other direction has been seen
	statusOffload   = 1 << 14 // IPS_OFFLOAD

	groupNew     = 1 // NFNLGRP_CONNTRACK_NEW
	groupDestroy = 3 // NFNLGRP_CONNTRACK_DESTROY

	statusDNAT = 1 << 5 // IPS_DST_NAT

	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaTupleZone  = 3

	ctaIPv4Src = 1
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum = 1
	ctaProtoSrc = 2
	ctaProtoDst = 3

	ctaFilterOrig  = 1
	ctaFilterReply = 2

	// Bits of the filter's two flag words: the parts of the accompanying tuple to compare.
	filterIPSrc   = 1 << 0
	filterIPDst   = 1 << 1
	filterProto   = 1 << 3
	filterPortSrc = 1 << 4
	filterPortDst = 1 << 5
)
