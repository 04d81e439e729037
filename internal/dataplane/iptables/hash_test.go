package iptables

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
)

// jhash is the kernel's jhash_1word (include/linux/jhash.h), as xt_cluster hashes an IPv4
// address.
func jhash(word, seed uint32) uint32 {
	a := 0xdeadbeef + 4 + seed
	b, c := a, a
	a += word
	for _, r := range [...]struct {
		x, y *uint32
		n    int
	}{{&c, &b, 14}, {&a, &c, 11}, {&b, &a, 25}, {&c, &b, 16}, {&a, &c, 4}, {&b, &a, 14}, {&c, &b, 24}} {
		*r.x ^= *r.y
		*r.x -= bits.RotateLeft32(*r.y, r.n)
	}
	return c
}

// chosen returns the endpoint that rules choose for each of n clients.
func chosen(t *testing.T, rules []string, n int) []string {
	type choice struct {
		total, seed uint32
		to          string
	}
	list := make([]choice, len(rules))
	for i, r := range rules {
		head, to, _ := strings.Cut(r, " -j DNAT --to-destination ")
		list[i].to = to
		if _, match, hashed := strings.Cut(head, "-m cluster "); hashed {
			if _, err := fmt.Sscanf(match, "--cluster-local-nodemask 0x00000001 --cluster-total-nodes %d --cluster-hash-seed 0x%x", &list[i].total, &list[i].seed); err != nil {
				t.Fatalf("%q: %v", r, err)
			}
		}
	}
	out := make([]string, n)
	for i := range out {
		client := binary.LittleEndian.Uint32(netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}).AsSlice())
		for _, c := range list {
			if uint64(jhash(client, c.seed))*uint64(c.total)>>32 == 0 {
				out[i] = c.to
				break
			}
		}
	}
	return out
}

// TestConsistentHash: endpoints have their share of the clients, and one that comes or
// goes, wherever its address is in the order, moves (1 + ln n) times its share at most.
func TestConsistentHash(t *testing.T) {
	const clients = 4_000
	p := picker{proto: model.TCP, family: model.IPv4, hash: true, cluster: true}
	for _, n := range []int{4, 16, 31} {
		all := make([]model.Backend, n+1)
		for i := range all {
			all[i] = model.Backend{Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(1 + i)}), Port: 8080, Weight: 1}
		}
		after := chosen(t, p.rules(all, nil), clients)
		count := map[string]int{}
		for _, c := range after {
			count[c]++
		}
		share, total := clients/(n+1), 0
		for at := range all {
			if c := count[all[at].AddrPort().String()]; c < share/2 || c > share*3/2 {
				t.Errorf("%d endpoints: %v has %d clients of %d", n+1, all[at].Addr, c, clients)
			}
			before, moved := chosen(t, p.rules(slices.Delete(slices.Clone(all), at, at+1), nil), clients), 0
			for i := range before {
				if before[i] != after[i] {
					moved++
				}
			}
			if total += moved; float64(moved) > 1.15*(1+math.Log(float64(n)))*float64(share) {
				t.Errorf("%d to %d endpoints, number %d comes: %d of %d clients move, its share is %d", n, n+1, at, moved, clients, share)
			}
		}
		t.Logf("%d to %d endpoints: %.1f %% of the clients move, at least %.1f %% must", n, n+1, 100*float64(total)/float64(len(all)*clients), 100/float64(n+1))
	}
	weighted := []model.Backend{{Addr: netip.MustParseAddr("10.1.0.1"), Port: 80, Weight: 3}, {Addr: netip.MustParseAddr("10.1.0.2"), Port: 80, Weight: 1}}
	n := 0
	for _, c := range chosen(t, p.rules(weighted, nil), clients) {
		if c == "10.1.0.1:80" {
			n++
		}
	}
	if n < clients*72/100 || n > clients*78/100 {
		t.Errorf("weight 3 of 4 has %d of %d clients", n, clients)
	}
}
