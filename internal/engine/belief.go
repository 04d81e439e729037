package engine

// belief is the sync state: how far the engine can rely on the tracker's actual state.
// It alone decides whether the kernel must be read before it is written.
//
// Example: after a Load the tracker is in sync. A conflict makes the sync state foreign
// (drifted), so the next round reads the kernel, reports the drift and repairs it. A write
// that failed with an unknown outcome makes it doubtful. The driver then reports whether
// the rules were changed: unchanged means in sync again, changed requires a read.
type belief uint8

const (
	unknown  belief = iota // the kernel has not been read yet
	believed               // in sync: no sign that the actual state is stale
	due                    // in sync, and an audit is due: pending changes go first
	doubtful               // a write failed and may have been applied: query the driver
	mistaken               // stale after a write of this agent: read
	foreign                // another program wrote: read, and report the drift
	broken                 // the kernel was read, and some families must be rebuilt
	numBeliefs
)

// happening is an event that changes the sync state.
type happening uint8

const (
	readWell      happening = iota // a Load succeeded
	readBroken                     // a Load succeeded, and families must be rebuilt
	readFailed                     // a Load failed, and was not preempted
	gaveWay                        // a Load was preempted by a change
	auditDue                       // an audit is due
	auditOverdue                   // the audit was preempted too often: it is preempted no more
	writeUnsure                    // a write failed, and its outcome is unknown
	writtenInPart                  // a write was rejected, and a part of it was applied
	writeTooBig                    // a write was rejected: families must be rebuilt
	conflict                       // a write was rejected: the actual state is stale
	changed                        // the driver reports a write by another program, or does not know
	unchanged                      // the driver reports that there was no write
	failedOften                    // several syncs in a row failed
	distrusted                     // many syncs in a row failed: rebuild everything
	rebuilt                        // the last family that needed a rebuild was rebuilt
	numHappenings
)

// after returns the sync state that follows b after the event h. A pair that is not in the table leaves it unchanged.
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

// tellsDrift reports whether a difference that a Load finds counts as drift caused by another program.
func (b belief) tellsDrift() bool { return b == due || b == foreign }

// on changes the sync state by an event.
func (e *Engine) on(h happening) { e.belief = e.belief.after(h) }
