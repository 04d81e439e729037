package nftables

// The endpoints of VIPs are by far the largest map. The kernel's dump of a map
// walks from its beginning again for each 32 KB message: 13 s at 500 000 endpoints
// in one map, one second in sixteen. So the map is split by the last digit of address
// plus port. The chains that draw from it depend on the shard: chain lb-a-4 is class 4
// over eps-a. Chains are created when they are needed, so small nodes have few.

// shards is the number of sets of a split setDef.
const shards = 16

var shardDigits = [shards]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f"}

var shardNames = [shards]string{"eps-0", "eps-1", "eps-2", "eps-3", "eps-4", "eps-5", "eps-6", "eps-7",
	"eps-8", "eps-9", "eps-a", "eps-b", "eps-c", "eps-d", "eps-e", "eps-f"}

// shardOf returns the shard of a VIP's ID: address, protocol, port. The port is included
// because many Services may share an address.
func shardOf[T string | []byte](id T) int {
	if len(id) < 4 {
		return 0
	}
	return int(id[len(id)-4]+id[len(id)-1]) % shards
}

// parts returns the names of the sets of a setDef.
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
