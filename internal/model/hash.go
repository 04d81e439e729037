package model

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// HashSeed is the seed of the client hash. It must be equal in every mode that has a
// HashTable, on every node and in every release, or clients would change endpoints.
const HashSeed = 1

// HashTable maps clients to endpoints, equally on every node. The hash of a client is
// scaled to an index in 0..len-1 by its upper bits (hash * len >> 32, like the kernel's
// jhash expression). The entry at that index is the index of the endpoint in Backends.
// The length is a power of two, from 2048 to 65 536 (see policy.hashTable). A table of
// twice the length has each entry twice, except those that an endpoint gained or lost.
//
// Example: in a table of 2048 entries a client with the hash 0x80000000 has the index
// 1024, and the endpoint Backends[table[1024]].
type HashTable []uint16

// Place returns the index of a client in the table. The client's address is valid and
// unmapped, because 4 and 16 bytes have different hashes. The table is not empty.
func (t HashTable) Place(client netip.Addr) int {
	return int(uint64(jhash(client.AsSlice(), HashSeed)) * uint64(len(t)) >> 32)
}

// jhash is the kernel's hash function (linux/jhash.h) for an address of 4 or 16 bytes in
// network byte order, whose words it reads in the byte order of the machine.
func jhash(key []byte, seed uint32) uint32 {
	a := 0xdeadbeef + uint32(len(key)) + seed
	b, c := a, a
	mix := func(x, y, z *uint32, n int) { *x -= *z; *x ^= bits.RotateLeft32(*z, n); *z += *y }
	for ; len(key) > 12; key = key[12:] {
		a += binary.NativeEndian.Uint32(key)
		b += binary.NativeEndian.Uint32(key[4:])
		c += binary.NativeEndian.Uint32(key[8:])
		mix(&a, &b, &c, 4)
		mix(&b, &c, &a, 6)
		mix(&c, &a, &b, 8)
		mix(&a, &b, &c, 16)
		mix(&b, &c, &a, 19)
		mix(&c, &a, &b, 4)
	}
	a += binary.NativeEndian.Uint32(key) // four bytes remain for both lengths
	end := func(x, y *uint32, n int) { *x ^= *y; *x -= bits.RotateLeft32(*y, n) }
	end(&c, &b, 14)
	end(&a, &c, 11)
	end(&b, &a, 25)
	end(&c, &b, 16)
	end(&a, &c, 4)
	end(&b, &a, 14)
	end(&c, &b, 24)
	return c
}
