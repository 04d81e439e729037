// Command peers compares Service proxies: upstream kube-proxy and Fairlead, one after the other, on the same real API
// server with the same Services, read by the same metric names and probed with the same packets. It prints a table with
// ratios and keeps every record as a JSON line. run.sh builds what it needs and starts it.
//
// One goroutine drives a run; probes and churn have goroutines of their own that end with their phase. Everything is in
// namespaces of two netlab.Labs: one for the control plane, and one for each subject, so that each subject starts with an
// unmodified network namespace.
package main
