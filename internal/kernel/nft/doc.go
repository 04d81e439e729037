// Package nft is the one narrow seam to the kernel's nftables: a small netlink encoder and decoder of our own on top of
// the sockets of internal/kernel/netlink. It owns the wire format (tables, sets, chains, rules, expressions, elements and the
// user data that lets nft print them), one transaction per [Batch], and the generation that proves nobody else wrote. It knows
// nothing of Services. The nftables and flowtable data planes call it from the engine's goroutine; only [Kernel.Watch] is meant
// for a goroutine of its own. Four things implement or wrap [Kernel]: [Conn] (the real one), [Fake] (a model that executes the
// very bytes of a batch and rejects what the kernel rejects), [Faulty] and [Counter].
//
// It exists beside google/nftables because that library cannot write the typeof user data without which nft 1.0.6 aborts on
// listing our maps, acknowledges every message (ENOBUFS from about 240), and does not split long element lists.
package nft
