package kit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// Get fetches a URL from inside a host's namespace, on its own connection.
func Get(ctx context.Context, h *netlab.Host, url string) (status int, header http.Header, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(2*time.Second))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, "", err
	}
	tr := &http.Transport{DialContext: h.Dial, DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	return res.StatusCode, res.Header, string(b), err
}

// Metric reads the agent's metrics in the node's namespace and returns the sum of the samples of one name over all labels.
func Metric(ctx context.Context, node *netlab.Host, name string) (float64, error) {
	status, _, body, err := Get(ctx, node, "http://127.0.0.1:10249/metrics")
	if err != nil || status != http.StatusOK {
		return 0, errors.Join(fmt.Errorf("get metrics: status %d", status), err)
	}
	return sumSamples(body, name)
}

var errNoMetric = errors.New("metric is not served")

func sumSamples(body, name string) (float64, error) {
	sum, found := 0.0, false
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("parse sample %q: %w", line, err)
		}
		sum, found = sum+value, true
	}
	if !found {
		return 0, fmt.Errorf("read metric %s: %w", name, errNoMetric)
	}
	return sum, nil
}

// httpExpectation fetches one URL and checks the response.
type httpExpectation struct {
	text, host, url   string
	status            int
	contains, headers []string
}

func (e *httpExpectation) String() string { return e.text }

func (e *httpExpectation) check(ctx context.Context, r *run) error {
	h, err := r.lab.Host(e.host)
	if err != nil {
		return err
	}
	status, header, body, err := Get(ctx, h, e.url)
	if err != nil {
		return err
	}
	if status != e.status {
		return fmt.Errorf("status %d, want %d: %.200s", status, e.status, body)
	}
	for _, want := range e.contains {
		proxy, _ := proxyMode(r.mode)
		want = strings.ReplaceAll(want, "$MODE", proxy)
		if !strings.Contains(squeeze(body), squeeze(want)) {
			return fmt.Errorf("body lacks %q: %.300s", want, body)
		}
	}
	for _, want := range e.headers {
		key, value, _ := strings.Cut(want, ":")
		if got := header.Get(key); got != strings.TrimSpace(value) {
			return fmt.Errorf("header %s is %q, want %q", key, got, strings.TrimSpace(value))
		}
	}
	return nil
}

// squeeze removes all white space: two encoders of the same JSON differ in it.
func squeeze(s string) string { return strings.Join(strings.Fields(s), "") }
