package k8s

import "k8s.io/client-go/tools/metrics"

// ReportRequests has all clients of this process report their requests. client-go
// keeps who is told in package variables and takes the first that registers.
func ReportRequests(took metrics.LatencyMetric, result metrics.ResultMetric) {
	metrics.Register(metrics.RegisterOpts{RequestLatency: took, RequestResult: result})
}
