package delta

import "math"

// Places in the order of Pending: creations by rank, changes, deletions by rank backwards.
const (
	maxRank    = math.MaxUint8
	changes    = maxRank + 1           // the place of changes, after all creations
	numPlaces  = changes + 1 + changes // deletions come last
	leftBehind = -1                    // not in this list
)

// places holds, for each place, the number of its entries; after layOut, the index of its next entry.
type places [numPlaces]int

// count adds an entry at a place; leftBehind is ignored.
func (p *places) count(place int) {
	if place >= 0 {
		p[place]++
	}
}

// layOut turns the counts into the index of the first entry of each place, and returns the number of all entries.
func (p *places) layOut() (total int) {
	for i, n := range p {
		p[i] = total
		total += n
	}
	return total
}

// take returns the index of the next entry of a place, leftBehind for leftBehind.
func (p *places) take(place int) int {
	if place < 0 {
		return leftBehind
	}
	p[place]++
	return p[place] - 1
}
