package engine

// belief is what the engine holds of its own picture of the kernel, the tracker's
// "have". It decides alone whether the kernel must be read before it is written.
type belief uint8

const (
	unknown  belief = iota // nothing has been read yet
	believed               // the picture is right, as far as anybody knows
	due                    // the same, but it is time to compare: a change goes first
	doubtful               // a write failed and may have been done all the same: ask the driver
	mistaken               // our own write left something else than we believe: read
	foreign                // somebody else wrote: read, and say what he changed
	broken                 // it was read, and some families can only be made anew
	numBeliefs
)

// happening is something that changes the belief.
type happening uint8

const (
	readWell      happening = iota // a Load succeeded
	readBroken                     // a Load succeeded, and families must be made anew
	readFailed                     // a Load failed for good
	gaveWay                        // a Load ended for a change that had come
	auditDue                       // it is time to compare
	auditOverdue                   // it has been for long: it gives way no more
	writeUnsure                    // a write failed, and its outcome is unknown
	writtenInPart                  // a write was refused, and its beginning was done
	writeTooBig                    // a write was refused: families must be made anew
	conflict                       // a write was refused: the picture is wrong
	changed                        // the driver says that somebody wrote, or cannot say
	unchanged                      // the driver says that nobody did
	failedOften                    // several turns in a row failed
	distrusted                     // many did: make everything anew
	rebuilt                        // the last family that must be was made anew
	numHappenings
)

// after is the belief once something has happened. What is not named changes nothing.
func (b belief) after(h happening) belief {
	next, known := map[happening]map[belief]belief{
		readFailed:    {due: foreign},
		gaveWay:       {due: believed},
		auditDue:      {believed: due},
		auditOverdue:  {believed: foreign},
		writeUnsure:   {believed: doubtful, due: mistaken, broken: mistaken},
		writtenInPart: {believed: mistaken, due: mistaken, doubtful: mistaken, broken: mistaken},
		writeTooBig:   {believed: broken},
		conflict:      {believed: foreign, due: foreign, doubtful: foreign, broken: foreign},
		changed:       {believed: foreign, due: foreign, doubtful: mistaken, broken: foreign},
		unchanged:     {doubtful: believed},
		failedOften:   {believed: mistaken, due: mistaken, doubtful: mistaken, broken: mistaken},
		distrusted:    {believed: broken},
		rebuilt:       {broken: believed},
	}[h][b]
	switch {
	case h == readWell:
		return believed
	case h == readBroken:
		return broken
	case known:
		return next
	}
	return b
}

// mustRead reports whether the kernel must be read before it is written.
func (b belief) mustRead() bool { return b == unknown || b == due || b == mistaken || b == foreign }

// tellsDrift reports whether what a Load finds different was somebody else's doing.
func (b belief) tellsDrift() bool { return b == due || b == foreign }

func (e *Engine) on(h happening) { e.belief = e.belief.after(h) }
