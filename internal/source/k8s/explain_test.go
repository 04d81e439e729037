package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/internal/model"
)

func TestExplain(t *testing.T) {
	const server = "https://192.0.2.1:6443"
	wrapped := func(err error) error { return &url.Error{Op: "Get", URL: server + "/api/v1/services", Err: err} }
	dial := func(err error) error { return wrapped(&net.OpError{Op: "dial", Net: "tcp", Err: err}) }
	forbidden := func(verb string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}, "",
			fmt.Errorf("User %q cannot %s resource %q", "system:serviceaccount:kube-system:fairlead", verb, "endpointslices"))
	}
	const noRole = "forbidden: list endpointslices: grant the account system:serviceaccount:kube-system:fairlead the role in deploy/: until then endpoints keep their last known state; without one, the kernel stays unchanged"
	for _, c := range []struct {
		err  error
		want string
	}{
		{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), "cannot reach the API server at " + server + ": connection refused"},
		{dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), "cannot reach the API server at " + server + ": no route to host"},
		{dial(&net.DNSError{Name: "api.example", Err: "no such host", IsNotFound: true}), "cannot reach the API server at " + server + ": the name api.example cannot be resolved: no such host"},
		{dial(&net.DNSError{Name: "api.example", Err: "server misbehaving"}), "cannot reach the API server at " + server + ": the name api.example cannot be resolved: server misbehaving"},
		{dial(os.ErrDeadlineExceeded), "cannot reach the API server at " + server + ": no answer in time"},
		{wrapped(context.DeadlineExceeded), "cannot reach the API server at " + server + ": no answer in time"},
		{wrapped(errors.New("EOF of some kind")), "cannot reach the API server at " + server + ": EOF of some kind"},
		{forbidden("list"), noRole},
		{forbidden("watch"), noRole},
		{apierrors.NewUnauthorized("Unauthorized"), "the API server at " + server + " rejects the agent's credentials (401): the token has expired or is unknown, or the client certificate is not signed by the cluster"},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusServiceUnavailable, Message: "apiserver not ready"}}, "the API server at " + server + " cannot list endpointslices: it answers 503 apiserver not ready"},
	} {
		if got := explain(server, "endpointslices", c.err); got != c.want {
			t.Errorf("%v:\n got %s\nwant %s", c.err, got, c.want)
		}
	}
}

// A server that does not exist is reported in one line, whatever the number of
// resources, and without the local port, which differs with each attempt.
func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	kubeconfig := f.kubeconfig("", "")
	f.server.Close()
	l := start(t, f, func(c *Config) { c.Kubeconfig = kubeconfig })
	want := "cannot reach the API server at " + f.server.URL + ": connection refused"
	l.until(t, "one clear word", func() bool { return len(l.problems) == 1 && l.problems[0] == want })
	l.see(func() {
		if l.kind != model.Unavailable {
			t.Error("a server that is away is called bad input")
		}
	})
}

// An empty list of another type, which a proxy in between may return, is not taken for a cluster without
// Services.
func TestListOfSomethingElse(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}))
	defer server.Close()
	l := start(t, nil, func(c *Config) { c.Master = server.URL })
	want := "the server at " + server.URL + " answers a list of services with a PodList: it is not a Kubernetes API server, or a proxy on the way changes its answers"
	l.until(t, "what it answers", func() bool { return slices.Contains(l.problems, want) })
	l.see(func() {
		if l.synced() {
			t.Error("synced with it")
		}
	})
}

// A server that accepts the connection and sends nothing is reported, too, and long
// before the connection attempt itself times out.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	l := start(t, nil, func(c *Config) { c.Master = "http://" + mute.Addr().String() })
	want := "no answer from the API server at " + l.source.tracker.server + " yet; trying again"
	l.until(t, "that it does not answer", func() bool { return len(l.problems) == 1 && l.problems[0] == want })
	if firstAnswer >= time.Second {
		t.Errorf("told only after %s", firstAnswer)
	}
}

// That the server has forgotten how far back we were is no trouble with it.
func TestForgottenHistoryIsNoTrouble(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	s, err := New(Config{Kubeconfig: f.kubeconfig("", ""), QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	f.refuse["services"] = http.StatusGone
	var answers []error
	lw := &listWatch{client: s.clients.core, resource: "services", kind: "Service", narrow: func(*metav1.ListOptions) {},
		answered: func(err error) { answers = append(answers, err) }, listError: func(error) {}}
	if _, err := lw.Watch(metav1.ListOptions{ResourceVersion: "1"}); !isStale(err) {
		t.Fatalf("watch: %v", err)
	}
	if _, err := lw.List(metav1.ListOptions{ResourceVersion: "1"}); !isStale(err) {
		t.Fatalf("list: %v", err)
	}
	if len(answers) != 0 {
		t.Errorf("told as trouble: %v", answers)
	}
}

// Many nodes must not storm a server that comes back, and one that was only
// restarted is asked again at once.
func TestPausesGrowAsThoseOfClientGo(t *testing.T) {
	b := pauses(longestPause)
	first, last := b.Step(), time.Duration(0)
	for range 30 {
		last = b.Step()
	}
	if first > time.Second || last < 30*time.Second || last > 60*time.Second {
		t.Errorf("the first pause is %s, the last %s", first, last)
	}
	one, other, same := pauses(longestPause), pauses(longestPause), true
	for range 31 {
		same = one.Step() == other.Step() && same
	}
	if same {
		t.Error("pauses have no jitter")
	}
}

// No password of a URL, of the server or of a proxy, is in what is logged or shown: neither where the URL is right, nor where the error quotes a wrong one.
func TestNoPasswords(t *testing.T) {
	const secret = "s3cr/et"
	config := func(server, proxy string) string {
		file := t.TempDir() + "/config"
		text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: %q, proxy-url: %q}}]\n"+
			"contexts: [{name: x, context: {cluster: x}}]\n", server, proxy)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range []Config{
		{Kubeconfig: config("https://192.0.2.1", "http://admin:"+secret+"@192.0.2.2:x")},
		{Kubeconfig: config("https://192.0.2.1", "gopher://admin:"+secret+"@192.0.2.2")},
		{Kubeconfig: config("https://admin:"+secret+"@192.0.2.1:x", "")},
		{Master: "admin:" + secret + "@192.0.2.1"},
		{Master: "https://admin:" + url.PathEscape(secret) + "@192.0.2.1:6443"},
	} {
		s, err := New(c)
		shown := fmt.Sprint(err)
		if err == nil {
			shown = s.clients.server
		}
		if strings.Contains(shown, "cr/et") || strings.Contains(shown, "cr%2Fet") {
			t.Errorf("%+v shows %s", c, shown)
		}
	}
	for text, want := range map[string]string{
		"https://192.0.2.1:6443":                         "https://192.0.2.1:6443",
		"https://u:p@192.0.2.1:6443":                     "https://xxxxx@192.0.2.1:6443",
		`cannot use "http://u:p@h": no "http://token@h"`: `cannot use "http://xxxxx@h": no "http://xxxxx@h"`,
		`User "jane@example.com" may not`:                `User "jane@example.com" may not`,
	} {
		if got := redacted(text); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
	err := fmt.Errorf("proxyconnect tcp: invalid proxy address %q", "http://u:"+secret+"@h")
	if got := explain("https://h", "services", err); strings.Contains(got, secret) {
		t.Errorf("the reason of a failure shows %s", got)
	}
}
