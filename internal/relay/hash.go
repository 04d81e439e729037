package relay

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// hashSeed is nftables mode's, so that a client has the same endpoint through a node
// of either mode.
const hashSeed = 1

// place is where a client is in a model.HashTable of the given length.
func place(client netip.Addr, length int) int {
	return int(uint64(jhash(client.AsSlice(), hashSeed)) * uint64(length) >> 32)
}

// jhash is the kernel's (linux/jhash.h), of an address of 4 or 16 bytes.
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
	a += binary.NativeEndian.Uint32(key) // four bytes are left of both lengths
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
