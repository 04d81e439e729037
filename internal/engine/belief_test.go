package engine

import "testing"

// TestBelief checks the next sync state for every sync state and every event.
func TestBelief(t *testing.T) {
	const same = numBeliefs
	table := [numHappenings][numBeliefs]belief{
		//             unknown   believed  due       doubtful  mistaken  foreign   broken
		readWell:      {believed, believed, believed, believed, believed, believed, believed},
		readBroken:    {broken, broken, broken, broken, broken, broken, broken},
		readFailed:    {same, same, foreign, same, same, same, same},
		gaveWay:       {same, same, believed, same, same, same, same},
		auditDue:      {same, due, same, same, same, same, same},
		auditOverdue:  {same, foreign, same, same, same, same, same},
		writeUnsure:   {same, doubtful, mistaken, same, same, same, mistaken},
		writtenInPart: {same, mistaken, mistaken, mistaken, same, same, mistaken},
		writeTooBig:   {same, broken, same, same, same, same, same},
		conflict:      {same, foreign, foreign, foreign, same, same, foreign},
		changed:       {same, foreign, foreign, mistaken, same, same, foreign},
		unchanged:     {same, same, same, believed, same, same, same},
		failedOften:   {same, mistaken, mistaken, mistaken, same, same, mistaken},
		distrusted:    {same, broken, same, same, same, same, same},
		rebuilt:       {same, same, same, same, same, same, believed},
	}
	for h := range numHappenings {
		for b := range numBeliefs {
			want := table[h][b]
			if want == same {
				want = b
			}
			if got := b.after(h); got != want {
				t.Errorf("belief %d after %d is %d, want %d", b, h, got, want)
			}
		}
	}
	for b, want := range [numBeliefs]struct{ mustRead, drift bool }{
		unknown: {true, false}, believed: {false, false}, due: {true, true}, doubtful: {false, false},
		mistaken: {true, false}, foreign: {true, true}, broken: {false, false},
	} {
		if got := belief(b); got.mustRead() != want.mustRead || got.tellsDrift() != want.drift {
			t.Errorf("belief %d: must read %t, tells drift %t", b, got.mustRead(), got.tellsDrift())
		}
	}
}
