package nft

// Wire numbers of linux/netfilter/nf_tables.h that golang.org/x/sys/unix lacks.
const (
	nftaTableHandle   = 4
	nftaTableUserdata = 6
	nftaTableOwner    = 7

	nftaChainFlags    = 10
	nftaChainUserdata = 12

	nftaSetHandle     = 16
	nftaSetCount      = 20
	nftaSetDescConcat = 2
	nftaSetFieldLen   = 1

	nftaElemKeyEnd = 10

	nftDynsetOpDelete = 2
	nftDynsetExpr     = 1 << 1 // NFT_DYNSET_F_EXPR: elements have expressions

	nftaBitwiseOp  = 6
	nftaFlowTable  = 1 // NFTA_FLOW_TABLE_NAME
	nfnlSubsysNft  = 10
	nfnlGroupNft   = 7
	batchBegin     = 0x10
	batchEnd       = 0x11
	nlmErrorTLVs   = 0x200 // NLM_F_ACK_TLVS
	nlmErrorCapped = 0x100 // NLM_F_CAPPED
	nlmsgerrMsg    = 1     // NLMSGERR_ATTR_MSG
	nlmsgerrOffset = 2     // NLMSGERR_ATTR_OFFS
)
