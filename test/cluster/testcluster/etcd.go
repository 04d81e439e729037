package testcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// Compact discards the history of etcd up to now. A watcher that was disconnected longer gets 410 Gone.
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

// Stored is an object and the key under which the API server stores it, as in /registry/services/specs/default/web.
type Stored struct {
	Key    string
	Object runtime.Object // with its kind set
}

// StoreLimit is the maximum number of objects of one Store call: etcd's bound on the operations of a transaction.
const StoreLimit = 128

// Store writes objects straight into etcd, in the encoding of the API server, which then serves them like objects that
// it created itself. It is for loads of many Services: the server's allocator counts all addresses for each new
// Service, so that 44 000 would take it half an hour. Objects are neither validated nor defaulted.
func (c *Cluster) Store(ctx context.Context, objects []Stored) error {
	encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var puts []map[string]any
	for _, o := range objects {
		var value bytes.Buffer
		if err := encoder.Encode(o.Object, &value); err != nil {
			return fmt.Errorf("encode %s: %w", o.Key, err)
		}
		puts = append(puts, map[string]any{"requestPut": map[string][]byte{"key": []byte(o.Key), "value": value.Bytes()}})
	}
	return c.etcdCall(ctx, "/v3/kv/txn", map[string]any{"success": puts}, nil)
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
