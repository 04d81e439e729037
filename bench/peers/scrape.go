package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// page is the parsed /metrics page of a subject.
type page map[string]*dto.MetricFamily

const (
	lastSync    = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	syncTime    = "kubeproxy_sync_proxy_rules_duration_seconds"
	programming = "kubeproxy_network_programming_duration_seconds"
	operations  = "fairlead_operations_total"
	kernelReads = "fairlead_kernel_reads_total"
)

var errNoMetric = errors.New("no such metric")

func scrape(ctx context.Context, from *netlab.Host) (page, error) {
	client := http.Client{Transport: &http.Transport{DialContext: from.Dial, DisableKeepAlives: true}, Timeout: 2 * time.Second}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// series returns the series that count, those without IPv6: kube-proxy reports IPv6
// separately, and these Services have no IPv6.
func (p page) series(name string) (all []*dto.Metric) {
	for _, m := range p[name].GetMetric() {
		v6 := false
		for _, l := range m.GetLabel() {
			v6 = v6 || l.GetName() == "ip_family" && l.GetValue() == "IPv6"
		}
		if !v6 {
			all = append(all, m)
		}
	}
	return all
}

// value returns the sum of a counter or gauge.
func (p page) value(name string) (total float64, err error) {
	if p[name] == nil {
		return 0, fmt.Errorf("%s: %w", name, errNoMetric)
	}
	for _, m := range p.series(name) {
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return total, nil
}

// observed returns the number and the mean of a histogram's observations since an earlier
// page.
func (p page) observed(name string, earlier page) (count, mean float64) {
	var sum float64
	for _, at := range []struct {
		page page
		sign float64
	}{{p, 1}, {earlier, -1}} {
		for _, m := range at.page.series(name) {
			count += at.sign * float64(m.GetHistogram().GetSampleCount())
			sum += at.sign * m.GetHistogram().GetSampleSum()
		}
	}
	if count > 0 {
		mean = sum / count
	}
	return count, mean
}
