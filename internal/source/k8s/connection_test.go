package k8s

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// What happens while the connection is away is found, deletions included, and
// nothing that stayed is told again: after an EOF with the history at hand, and
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
	l.until(t, "refused", func() bool { return len(l.problems) == 1 && strings.Contains(l.problems[0], "refuses our credentials") })
	if err := os.WriteFile(file, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.put("services", service("new", "10.96.0.8"))
	l.until(t, "let in again", func() bool { return l.services["default/new"] != nil && len(l.problems) == 0 })
}

// strangersCertificate is that of an authority which signed nobody's.
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
	for status, complaint := range map[int]string{http.StatusNotFound: "", http.StatusForbidden: "forbidden: list servicecidrs: give the account"} {
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

// Without a list of Services nothing is complete.
func TestForbiddenServices(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	populate(f)
	f.refuse["services"] = http.StatusForbidden
	l := start(t, f, nil)
	l.until(t, "a clear word", func() bool {
		return len(l.problems) == 1 && strings.Contains(l.problems[0], "forbidden: list services: give the account")
	})
	l.until(t, "the others", func() bool { return l.node != nil && l.cidrs != nil && len(l.slices) == 1 })
	l.see(func() {
		if l.synced() {
			t.Error("synced without Services")
		}
	})
	f.do(func() { delete(f.refuse, "services") })
	l.until(t, "synced", l.synced)
}
