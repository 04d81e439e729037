package model

import (
	"net/netip"
	"testing"
)

// TestHashStays: package nftables holds the same function against the kernel; a client
// must have the same endpoint through nodes of either mode, and after an upgrade.
func TestHashStays(t *testing.T) {
	for a, want := range map[string]uint32{"192.0.2.1": 0xdb321a6c, "2001:db8::1": 0x1e55bcd1} {
		client := netip.MustParseAddr(a)
		if got := jhash(client.AsSlice(), HashSeed); got != want {
			t.Errorf("%s: %#x, want %#x", a, got, want)
		}
		if got := make(HashTable, 1<<12).Place(client); got != int(want>>20) {
			t.Errorf("%s is at %d of a table of 4096, want %d", a, got, want>>20)
		}
	}
}
