package relay

import "sync/atomic"

// counts are the counters behind Counts.
type counts struct {
	open, moving, flows, accepted, retried, refused, overService, overProcess, overPorts, displaced, loops, stalled, gone, bytes, lost, sourceLost atomic.Int64
}

// Counts are the counters and gauges of a Relay.
type Counts struct {
	Connections int64 // TCP connections that are open
	Moving      int64 // their directions that hold a pipe or a buffer: bytes pass, or wait for their receiver
	Flows       int64 // UDP clients that are remembered
	Accepted    int64 // TCP connections and UDP clients taken so far
	Retried     int64 // attempts at an endpoint that did not take the connection, so that another was asked
	Refused     int64 // connections for which no endpoint was found
	OverService int64 // rejected because their Service had its share
	OverProcess int64 // rejected because the process had no descriptors
	OverPorts   int64 // UDP clients rejected because no port was left for them
	Displaced   int64 // UDP clients that made room for others of their Service
	Loops       int64 // endpoints not asked because they loop back to their own Service
	Stalled     int64 // ended because a peer took nothing, sent nothing after the other side had ended, or has disappeared
	Gone        int64 // ended because their endpoint was removed
	Bytes       int64 // carried over TCP connections
	Lost        int64 // datagrams that were not carried
	SourceLost  int64 // connections and UDP clients whose address was to be kept and could not
}

// Counts returns a snapshot of the counters; any goroutine may call it.
func (r *Relay) Counts() Counts {
	c := &r.counts
	return Counts{Connections: c.open.Load(), Moving: c.moving.Load(), Flows: c.flows.Load(), Accepted: c.accepted.Load(), Retried: c.retried.Load(),
		Refused: c.refused.Load(), OverService: c.overService.Load(), OverProcess: c.overProcess.Load(), OverPorts: c.overPorts.Load(), Displaced: c.displaced.Load(), Loops: c.loops.Load(), Stalled: c.stalled.Load(), Gone: c.gone.Load(),
		Bytes: c.bytes.Load(), Lost: c.lost.Load(), SourceLost: c.sourceLost.Load()}
}

// turnedAway counts and reports a connection that the budget rejected.
func (t *Target) turnedAway(err error) {
	r := t.r
	switch err {
	case errServiceFull:
		r.counts.overService.Add(1)
	case errPorts:
		r.counts.overPorts.Add(1)
	default:
		r.counts.overProcess.Add(1)
	}
	r.complain(t.service(), "rejected a connection", err)
}
