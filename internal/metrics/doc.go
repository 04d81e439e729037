// Package metrics owns every metric name of the agent: kube-proxy's own (so
// that dashboards go on working) and fairlead_ ones, in one table that a golden
// file fixes.
//
// The engine's goroutine feeds it plain values through typed methods; the HTTP
// server reads it at any time. Label values are resolved once in New, so that
// a sync allocates nothing here. No label carries the name of an object, except in the
// rows of --service-metrics (service.go), whose number is bounded.
package metrics
