// Package nft is the kernel client for nftables: a netlink encoder and decoder on top of
// the sockets of internal/kernel/netlink. It owns the wire format (tables, sets, chains, rules, expressions, elements and the
// user data with which nft prints them), one transaction per [Batch], and the generation, an unchanged value of which proves that
// no other program wrote. It has no notion of a Service. The data planes nftables, ipvs and offload call it from the engine's
// goroutine; [Kernel.Watch] is meant for a goroutine of its own. Packages takeover, fastpath and dns/intercept, and reads that
// run concurrently with the engine, use Conns of their own. Four types implement or wrap [Kernel]: [Conn] (the real
// kernel), [Fake] (a model that executes the bytes of a batch and rejects what the kernel rejects), [Faulty] and [Counter].
//
// It is used instead of google/nftables because that library cannot write the typeof user data without which nft 1.0.6 aborts on
// listing the agent's maps, acknowledges every message (ENOBUFS from about 240), and does not split long element lists.
package nft
