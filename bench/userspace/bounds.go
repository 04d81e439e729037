package main

import "fmt"

// bounds are limits of the cost of abuse of one Service; 0: no bound.
type bounds struct {
	attempts float64 // per second, the minimum that a storm must reach
	ratio    float64 // of another Service's p99 through the proxy to that without it
	memory   int     // MB
	files    int
}

// broken returns a message for each bound that one mishap has broken.
func (b *bounds) broken(name string, s *seen, ratio float64) (out []string) {
	add := func(is bool, format string, values ...any) {
		if is {
			out = append(out, name+": "+fmt.Sprintf(format, values...))
		}
	}
	add(name == "storm" && b.attempts > 0 && s.arrived < b.attempts, "%.0f attempts a second have arrived, and it is no storm below %.0f", s.arrived, b.attempts)
	add(len(s.through) < 100 || len(s.direct) < 100, "%d answers through the proxy and %d without it say nothing about p99", len(s.through), len(s.direct))
	// Without abuse the ratio is that of the proxy alone, which has no goal.
	add(name != "nothing" && b.ratio > 0 && ratio >= b.ratio, "another Service's p99 is %.2f times that without the proxy; the bound is %.2f", ratio, b.ratio)
	add(s.failed > 0, "%d requests to another Service have failed", s.failed)
	add(b.memory > 0 && s.memory > b.memory, "%d MB; the bound is %d", s.memory, b.memory)
	add(b.files > 0 && s.files > b.files, "%d descriptors; the bound is %d", s.files, b.files)
	add(s.memory == 0 || s.files == 0, "the proxy is not there any more")
	return out
}
