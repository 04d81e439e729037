package k8s

import "k8s.io/client-go/tools/metrics"

// ReportRequests makes all clients of this process report their requests. client-go
// keeps the observers in package variables and uses the first ones that are
// registered.
func ReportRequests(took metrics.LatencyMetric, result metrics.ResultMetric) {
	metrics.Register(metrics.RegisterOpts{RequestLatency: took, RequestResult: result})
}
