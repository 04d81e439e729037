package model

// HashTable leads clients to endpoints, the same on every node: a client whose
// hash is scaled to 0..len-1 by its upper bits (hash * len >> 32, as the kernel's
// jhash does) goes to the endpoint whose place in the list of Backends the entry
// is. The length is a power of two; a table of twice the length has each entry
// twice, but for those that an endpoint gained or lost.
type HashTable []uint16
