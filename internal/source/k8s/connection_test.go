package k8s

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Changes while the connection is lost are found, deletions included, and objects
// that stayed are not delivered again: after an EOF with the history at hand, and
// after one when it is gone (410).
func TestConnectionLost(t *testing.T) {
	for _, forget := range []bool{false, true} {
		t.Run(fmt.Sprintf("forgotten=%t", forget), func(t *testing.T) {
			both(t, func(t *testing.T, f *fakeAPI) {
				f.put("services", service("stays", "10.96.0.7"))
				l := start(t, f, nil)
				l.until(t, "synced", l.synced)
				l.until(t, "connected", func() bool { return l.source.Status().Connected })
				n := l.told()
				f.do(func() { f.refuse["services"] = http.StatusServiceUnavailable })
				f.hangUpAll()
				f.del("services", service("web", ""))
				f.put("services", service("new", "10.96.0.8"))
				l.until(t, "trouble", func() bool {
					f.hangUpAll() // again: a watch that was just being answered is not cut by the first
					return len(l.problems) > 0 && !l.source.Status().Connected
				})
				if forget {
					f.forget()
				}
				f.do(func() { delete(f.refuse, "services") })
				l.until(t, "caught up", func() bool {
					return l.services["default/web"] == nil && l.services["default/new"] != nil && len(l.problems) == 0
				})
				if log := l.sinceThen(n); slices.Contains(log, "service stays") || slices.Contains(log, "synced k8s") {
					t.Errorf("told again: %q", log)
				}
				if s := l.source.Status(); !s.Connected || !s.Synced {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// A load balancer before a dead server accepts connections and closes them.
func TestConnectionClosedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	populate(f)
	l := start(t, f, nil)
	l.until(t, "synced", l.synced)
	l.until(t, "connected", func() bool { return l.source.Status().Connected })
	f.do(func() { f.deaf = true })
	f.hangUpAll()
	l.until(t, "trouble", func() bool { return len(l.problems) > 0 && !l.source.Status().Connected })
	f.put("services", service("new", "10.96.0.8"))
	f.do(func() { f.deaf = false })
	l.until(t, "back again", func() bool { return l.services["default/new"] != nil && len(l.problems) == 0 })
}

// A token that has been replaced in its file is used after the first refusal.
func TestTokenReplaced(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	populate(f)
	f.token = "first"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := start(t, f, func(c *Config) { c.Kubeconfig = f.kubeconfig("", file) })
	l.until(t, "synced", l.synced)
	f.do(func() { f.token = "second" })
	f.hangUpAll()
	l.until(t, "refused", func() bool {
		return len(l.problems) == 1 && strings.Contains(l.problems[0], "rejects the agent's credentials")
	})
	if err := os.WriteFile(file, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.put("services", service("new", "10.96.0.8"))
	l.until(t, "let in again", func() bool { return l.services["default/new"] != nil && len(l.problems) == 0 })
}

// strangersCertificate returns the certificate of an authority that has signed no
// other certificate.
func strangersCertificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestWrongCertificate(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	l := start(t, f, func(c *Config) { c.Kubeconfig = f.kubeconfig(strangersCertificate(t), "") })
	l.until(t, "a clear word", func() bool {
		return len(l.problems) == 1 && strings.HasPrefix(l.problems[0], "the certificate of the API server at "+f.server.URL+" is not trusted")
	})
	l.until(t, "the status", func() bool {
		s := l.source.Status()
		return !s.Connected && !s.Synced && strings.Contains(s.Err, "not trusted")
	})
}

// Old clusters have no ServiceCIDRs, and old roles forbid them: go on without.
func TestWithoutServiceCIDRs(t *testing.T) {
	for status, complaint := range map[int]string{http.StatusNotFound: "", http.StatusForbidden: "forbidden: list servicecidrs: grant the account"} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			f := newFakeAPI(t)
			populate(f)
			f.refuse["servicecidrs"] = status
			l := start(t, f, nil)
			l.until(t, "synced", l.synced)
			l.until(t, "connected", func() bool { return l.source.Status().Connected })
			l.see(func() {
				said := strings.Join(l.problems, " ")
				if l.cidrs != nil || (complaint == "") != (said == "") || !strings.Contains(said, complaint) {
					t.Errorf("ranges %v, problems %q", l.cidrs, said)
				}
			})
		})
	}
}

// A resource that cannot be listed costs itself only. Without Services or EndpointSlices nothing can be decided; without the Node
// and the ranges Services are followed (Listed), and the source is complete once they come.
func TestOneResourceThatCannotBeListed(t *testing.T) {
	for _, c := range []struct {
		resource       string
		status         int
		listed, synced bool
		others         func(l *listener) bool
	}{
		{"services", http.StatusForbidden, false, false, func(l *listener) bool { return l.node != nil && l.cidrs != nil && len(l.slices) == 1 }},
		{"endpointslices", http.StatusForbidden, false, false, func(l *listener) bool { return l.node != nil && l.cidrs != nil && len(l.services) == 1 }},
		{"endpointslices", http.StatusNotFound, false, false, func(l *listener) bool { return l.node != nil && l.cidrs != nil && len(l.services) == 1 }},
		{"nodes", http.StatusForbidden, true, false, func(l *listener) bool { return l.cidrs != nil }},
		{"nodes", http.StatusInternalServerError, true, false, func(l *listener) bool { return l.cidrs != nil }},
		{"servicecidrs", http.StatusInternalServerError, true, false, func(l *listener) bool { return l.node != nil }},
		{"servicecidrs", http.StatusForbidden, false, true, func(l *listener) bool { return l.node != nil }},
	} {
		t.Run(fmt.Sprint(c.resource, c.status), func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t)
			populate(f)
			f.refuse[c.resource] = c.status
			l := start(t, f, nil)
			l.until(t, "a clear word", func() bool { return len(l.problems) == 1 && strings.Contains(l.problems[0], "list "+c.resource) })
			l.until(t, "the others", func() bool { return c.others(l) && l.listed() == c.listed && l.synced() == c.synced })
			l.see(func() {
				if at := slices.Index(l.log, "listed k8s"); at >= 0 && (!slices.Contains(l.log[:at], "service web") || !slices.Contains(l.log[:at], "slice web-1")) {
					t.Errorf("listed before what is listed: %q", l.log)
				}
				if s := l.source.Status(); s.Connected != (c.resource == "servicecidrs") {
					t.Errorf("connected is %t", s.Connected)
				}
			})
			f.do(func() { delete(f.refuse, c.resource) })
			l.until(t, "synced", l.synced)
		})
	}
}

// etcd is restored from a backup: versions go back, and a watch from the version of before would be silent. All is listed again.
// (kubernetes#107457)
func TestRestoredFromBackup(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		t.Parallel()
		var log logBuffer
		l := start(t, f, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		l.until(t, "synced", l.synced)
		f.put("services", service("later", "10.96.0.2"))
		f.put("endpointslices", slice("web-1", "10.0.0.9"))
		l.until(t, "what the backup lacks", func() bool {
			return l.services["default/later"] != nil && l.slices["default/web-1"].Endpoints[0].Addr.String() == "10.0.0.9"
		})
		f.do(func() {
			f.version = 60
			for _, k := range f.kinds {
				clear(k.objects)
				k.history = nil
			}
		})
		populate(f)
		f.hangUpAll()
		l.until(t, "the endpoint of the backup", func() bool {
			return l.services["default/later"] == nil && l.services["default/web"] != nil && len(l.slices) == 1 && l.slices["default/web-1"].Endpoints[0].Addr.String() == "10.0.0.1"
		})
		f.put("endpointslices", slice("web-1", "10.0.0.3"))
		l.until(t, "a change afterwards", func() bool { return l.slices["default/web-1"].Endpoints[0].Addr.String() == "10.0.0.3" })
		if n := strings.Count(log.String(), "older than the data that it sent before"); n == 0 || n > len(f.kinds) {
			t.Errorf("said %d times", n)
		}
	})
}

// logBuffer is a log that several goroutines write.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A watch that goes on where the last one ended lists nothing again, and asks for one object before.
func TestWatchThatGoesOnListsNothing(t *testing.T) {
	f := newFakeAPI(t)
	populate(f)
	l := start(t, f, nil)
	l.until(t, "synced", l.synced)
	f.put("services", service("db", "10.96.0.2")) // client-go lists again after a watch that brought nothing
	l.until(t, "a change", func() bool { return l.services["default/db"] != nil })
	f.do(func() { f.queries = nil })
	f.hangUpAll()
	f.put("services", service("db", "10.96.0.3"))
	l.until(t, "a change afterwards", func() bool { return l.services["default/db"].ClusterIPs[0].String() == "10.96.0.3" })
	f.do(func() {
		for _, q := range f.queries {
			if strings.HasPrefix(q, "services?") && (strings.Contains(q, "sendInitialEvents=true") || !strings.Contains(q, "watch=true") && !strings.Contains(q, "limit=1")) {
				t.Errorf("asked for %s", q)
			}
		}
	})
}

// The removal of an object during that time is delivered before new objects, which
// may have its address.
func TestNewListTellsFirstWhatIsGone(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		l := start(t, f, nil)
		l.until(t, "synced", l.synced)
		n := l.told()
		f.do(func() {
			clear(f.kinds["services"].objects)
			f.kinds["services"].history = nil
			f.version += 10
			f.forgotten = f.version
			f.kinds["services"].objects["default/another"] = service("another", "10.96.0.1") // no watch hears of it
		})
		f.hangUpAll()
		l.until(t, "the new list", func() bool { return l.services["default/web"] == nil && l.services["default/another"] != nil })
		got := slices.DeleteFunc(l.sinceThen(n), func(s string) bool { return !strings.HasPrefix(s, "service") })
		if !slices.Equal(got, []string{"service web", "service another"}) {
			t.Errorf("told %q", got)
		}
	})
}
