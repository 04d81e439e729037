package main

import "fmt"

// goal is a requirement of issues 2 and 4: a ratio to kube-proxy in the same mode, or a
// bound.
type goal struct {
	ratio float64 // at least
	most  float64 // at most, in the row's unit
	zero  bool
}

// The conditions of a goal: the peer, and the size.
const (
	atFull   = "nftables 10000 x 10"
	atWide   = "nftables 44000 x 1"
	onLegacy = "iptables-legacy 10000 x 10"
	onNFT    = "iptables-nft 10000 x 10"
)

var rows = []row{
	{"cold start: CPU s", of(cold, func(r *startRecord) float64 { return r.CPU.Total }), map[string]goal{atFull: {ratio: 8}}},
	{"cold start: synced by its own metric, s", of(cold, func(r *startRecord) float64 { return r.SyncedSeconds }), map[string]goal{atFull: {ratio: 8}, atWide: {most: 5}}},
	{"cold start: first to last Service reached, s", of(cold, func(r *startRecord) float64 { return r.ReachedSeconds }), nil},
	{"cold start: cgroup memory peak, MiB", of(cold, func(r *startRecord) float64 { return r.PeakMiB }), nil},
	{"restart, nothing changed: CPU s", of(restart, func(r *startRecord) float64 { return r.CPU.Total }), map[string]goal{atFull: {ratio: 20}}},
	{"restart: synced by its own metric, s", of(restart, func(r *startRecord) float64 { return r.SyncedSeconds }), map[string]goal{atFull: {ratio: 20}}},
	{"restart: kernel objects written", counted(restart, func(r *startRecord) *float64 { return r.Objects }), nothing()},
	{"restart: probes lost", of(restart, func(r *startRecord) float64 { return float64(r.ProbesLost) }), nothing()},
	{"restart: cgroup memory peak, MiB", of(restart, func(r *startRecord) float64 { return r.PeakMiB }), nil},
	{"idle: CPU ms a second", of(single, func(r *singleRecord) float64 { return r.IdleMsPerS }), nil},
	{"one change: CPU ms p50", of(single, func(r *singleRecord) float64 { return r.CPUms.P50 }), map[string]goal{atFull: {ratio: 1000}, onLegacy: {ratio: 4}, onNFT: {ratio: 5}}},
	{"one change: API write to data plane, ms p50", of(single, func(r *singleRecord) float64 { return r.LatencyMs.P50 }), map[string]goal{atFull: {most: 10}, atWide: {most: 10}}},
	{"one change: the same, ms max", of(single, func(r *singleRecord) float64 { return r.LatencyMs.Max }), nil},
	{"one change: the API write alone, ms p50", of(single, func(r *singleRecord) float64 { return r.WriteMs.P50 }), nil},
	{"one change: kernel objects written", counted(single, func(r *singleRecord) *float64 { return r.ObjectsEach }), nil},
	{"10 changes a second: CPU s", of(churn, func(r *churnRecord) float64 { return r.CPU.Total }), map[string]goal{atFull: {ratio: 50}}},
	{"10 changes a second: API write to data plane, ms p50", of(churn, func(r *churnRecord) float64 { return r.LatencyMs.P50 }), nil},
	{"10 changes a second: the same, ms p99", of(churn, func(r *churnRecord) float64 { return r.LatencyMs.P99 }), nil},
	{"10 changes a second: syncs", of(churn, func(r *churnRecord) float64 { return r.Syncs }), nil},
	{"10 changes a second: cgroup memory peak, MiB", of(churn, func(r *churnRecord) float64 { return r.PeakMiB }), nil},
	{"highest cgroup memory peak of all phases, MiB", peak, map[string]goal{atFull: {ratio: 5}}},
	{"new connection, best p50 of 30 rounds, us: no proxy", to("bare"), nil},
	{"new connection, best p50 of 30 rounds, us: pod address", to("direct"), nil},
	{"new connection, best p50 of 30 rounds, us: first Service", to("first"), nil},
	{"new connection, best p50 of 30 rounds, us: last Service", to("last"), nil},
	{"new connection, best p50 of 30 rounds, us: last node port", to("nodeport"), nil},
}

func nothing() map[string]goal {
	none := goal{zero: true}
	return map[string]goal{atFull: none, onLegacy: none, onNFT: none}
}

func cold(r results) *startRecord    { return r.cold }
func restart(r results) *startRecord { return r.restart }
func single(r results) *singleRecord { return r.single }
func churn(r results) *churnRecord   { return r.churn }

// peak returns the maximum over the phases that were run.
func peak(r results) (mib float64, ok bool) {
	for _, s := range []*startRecord{r.cold, r.restart} {
		if s != nil {
			mib = max(mib, s.PeakMiB)
		}
	}
	if r.churn != nil {
		mib = max(mib, r.churn.PeakMiB)
	}
	return mib, mib > 0
}

func of[R any](part func(results) *R, value func(*R) float64) func(results) (float64, bool) {
	return func(r results) (float64, bool) {
		if part(r) == nil {
			return 0, false
		}
		return value(part(r)), true
	}
}

func counted[R any](part func(results) *R, value func(*R) *float64) func(results) (float64, bool) {
	return func(r results) (float64, bool) {
		if part(r) == nil || value(part(r)) == nil {
			return 0, false
		}
		return *value(part(r)), true
	}
}

func to(target string) func(results) (float64, bool) {
	return func(r results) (float64, bool) {
		if r.connect == nil {
			return 0, false
		}
		c, ok := (*r.connect)[target]
		return c.BestP50Us, ok
	}
}

func (g goal) verdict(mine float64, ok bool, peer func() (float64, bool)) string {
	met := func(want string, yes bool) string {
		if yes {
			return want + ": met"
		}
		return "**" + want + ": missed**"
	}
	switch {
	case g == goal{}:
		return ""
	case !ok:
		return "not measured"
	case g.zero:
		return met("0", mine == 0)
	case g.most > 0:
		return met("at most "+figure(g.most, true), mine <= g.most)
	}
	theirs, ok := peer()
	if !ok {
		return "the peer was not measured"
	}
	return met(fmt.Sprintf("%.0fx", g.ratio), mine == 0 || theirs/mine >= g.ratio)
}

const notes = `How to read this:
- CPU seconds first. They are the cgroup's, children (nft, iptables) included; work of kernel threads that free rules later is in
  nobody's account. Wall times are upper bounds on a machine with other work: see otherBusySeconds in the records.
- One run of each cell, medians of a few for single changes. Run again before making a claim smaller than about 1.5x.
- Goals are ratios to the first kube-proxy of the table, or bounds. A start is counted until the subject's own metric says synced; "reached"
  is what packets say, and for a cold start the CPU is counted until both are true.
- "API write to data plane" includes the API server's own work, and is seen at intervals of about 1.2 ms. Single changes carry 1.5 s
  of idling in their CPU window; that is the row "idle" times 1.5 or so.
- Memory is the cgroup's peak without the pages of the executable; kube-proxy's children count while they live.
- New connections cost what they cost on the moment's machine: small differences between the rows of one column are noise.
- The restart changes nothing before it. kube-proxy does not count the objects it writes, so it has no figure there.
- Subjects run with default flags but for node name, cluster CIDR and metrics address; kube-proxy also without connection table sizes.
`
