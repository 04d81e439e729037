package nftables

// The map of the endpoints of VIPs is by far the largest. For each 32 KB message of a dump
// the kernel walks a map from its beginning: 500 000 endpoints take 13 s in one map, and
// one second in sixteen maps. So the map is split into shards by the last hexadecimal
// digit of address plus port. A chain that draws from the map belongs to one shard:
// chain lb-a-4 is class 4 of eps-a. Chains are created on demand, so small nodes have few.

// shards is the number of sets of a split setDef.
const shards = 16

var shardDigits = [shards]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f"}

var shardNames = [shards]string{"eps-0", "eps-1", "eps-2", "eps-3", "eps-4", "eps-5", "eps-6", "eps-7",
	"eps-8", "eps-9", "eps-a", "eps-b", "eps-c", "eps-d", "eps-e", "eps-f"}

// shardOf returns the shard of a VIP's ID: address, protocol, port. It includes the port
// to distribute the ports of addresses that many Services share.
func shardOf[T string | []byte](id T) int {
	if len(id) < 4 {
		return 0
	}
	return int(id[len(id)-4]+id[len(id)-1]) % shards
}

// parts returns the names of all sets of a setDef.
func (s *setDef) parts() []string {
	if s.split {
		return shardNames[:]
	}
	return []string{s.name}
}

// part returns the name of the set that holds the object of an ID.
func (s *setDef) part(id string) string {
	if s.split {
		return shardNames[shardOf(id)]
	}
	return s.name
}
