package testcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Compact throws away the history of etcd up to now. A watcher that was away longer gets 410 Gone.
func (c *Cluster) Compact(ctx context.Context) error {
	var got struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.etcdCall(ctx, "/v3/maintenance/status", map[string]any{}, &got); err != nil {
		return err
	}
	return c.etcdCall(ctx, "/v3/kv/compaction", map[string]any{"revision": got.Header.Revision, "physical": true}, nil)
}

// etcdCall uses the JSON gateway of etcd, so that no etcd client is needed.
func (c *Cluster) etcdCall(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, etcdURL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: c.cfg.Host.Dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("call etcd %s: %w", path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("call etcd %s: status %d: %s (%v)", path, resp.StatusCode, answer, err)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
