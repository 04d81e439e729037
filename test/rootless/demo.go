package rootless

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Config configures the demo.
type Config struct {
	Agent     string // the program fairlead
	Self      string // this program, whose `backend` runs Serve
	Manifests string // examples/rootless
	Out       io.Writer
}

const (
	dnsAt   = "127.0.0.54:5353"
	domain  = ".default.svc.cluster.local"
	nodeOf6 = "http://[::1]:30090/"
)

var errClaim = errors.New("something above did not come out as it should")

type show struct {
	Config
	ctx    context.Context
	web    *http.Client // by the agent's DNS server
	agent  *process
	all    []*process
	args   []string
	failed bool
	has6   bool
}

// Run runs all parts of the demo. It returns an error if a claim did not hold.
func Run(ctx context.Context, c Config) error {
	dir, err := os.MkdirTemp("", "fairlead-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s := &show{Config: c, ctx: ctx, web: byName()}
	table := filepath.Join(dir, "services.txt")
	s.args = []string{"run", "--proxy-mode", "userspace", "--userspace-addresses", "loopback", "--manifests", c.Manifests, "--hostname-override", "laptop",
		"--dns-address", dnsAt, "--userspace-map", table, "--takeover"}
	defer s.endAll()
	for _, step := range []func() error{s.begin, func() error { return s.places(table) }, s.names, s.dies, s.restarts} {
		if err := step(); err != nil {
			return err
		}
	}
	if s.failed {
		return errClaim
	}
	s.say("\nEverything came out as it should.")
	return nil
}

// byName returns a client that makes each request on its own connection and resolves
// names through the agent's DNS server.
func byName() *http.Client {
	names := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, dnsAt)
	}}
	d := &net.Dialer{Resolver: names}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}, Timeout: 30 * time.Second}
}

func (s *show) say(format string, args ...any) { _, _ = fmt.Fprintf(s.Out, format+"\n", args...) }

// claim prints a statement and whether it is true.
func (s *show) claim(ok bool, format string, args ...any) {
	mark := "ok  "
	if !ok {
		mark, s.failed = "FAIL", true
	}
	s.say("  "+mark+" "+format, args...)
}

func (s *show) endAll() {
	for _, p := range s.all {
		p.end()
	}
}

func (s *show) start(program string, args ...string) (*process, error) {
	p, err := start(program, args...)
	if err == nil {
		s.all = append(s.all, p)
	}
	return p, err
}

func (s *show) begin() error {
	who := fmt.Sprint("user ", os.Getuid())
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	s.say("1. As %s: three ordinary processes, and the agent\n", who)
	l, err := net.Listen("tcp", "[::1]:0")
	if s.has6 = err == nil; s.has6 {
		_ = l.Close()
	}
	for _, b := range [][2]string{{"web-1", "127.1.0.1:9080"}, {"web-2", "127.1.0.2:9080"}, {"shop-1", "[::1]:9090"}} {
		if b[0] == "shop-1" && !s.has6 {
			s.say("  (this machine has no IPv6: what needs it is left out)")
			continue
		}
		p, err := s.start(s.Self, "backend", b[0], b[1])
		if err != nil {
			return err
		}
		if err := until(s.ctx, func() error {
			select {
			case <-p.done:
				return fmt.Errorf("%s: %s", b[0], p.log())
			default:
			}
			_, err := get(s.ctx, s.web, "http://"+b[1]+"/")
			return err
		}); err != nil {
			return err
		}
		s.say("  %-6s listens on %s", b[0], b[1])
	}
	s.say("  $ %s", strings.ReplaceAll(strings.Join(append([]string{"fairlead"}, s.args...), " "), " --", " \\\n      --"))
	if s.agent, err = s.start(s.Agent, s.args...); err != nil {
		return err
	}
	if err := s.agent.says(s.ctx, "in sync"); err != nil {
		return err
	}
	return s.answers()
}

// answers waits until the agent's DNS server answers.
func (s *show) answers() error {
	return until(s.ctx, func() error {
		_, err := get(s.ctx, s.web, "http://web"+domain+s.port(":80", ":10080"))
		return err
	})
}

func (s *show) places(table string) error {
	s.say("\n2. Where the Services of %s are answered here: the file of --userspace-map\n", s.Manifests)
	var text []byte
	if err := until(s.ctx, func() (err error) { text, err = os.ReadFile(table); return err }); err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		s.say("  %s", strings.TrimSpace(line))
	}
	return nil
}

// met sends several requests and counts the backends that answer.
func (s *show) met(url string, times int) (string, error) {
	counts := map[string]int{}
	for range times {
		name, err := get(s.ctx, s.web, url)
		if err != nil {
			return "", err
		}
		counts[name]++
	}
	text := fmt.Sprint(counts)
	return strings.TrimSuffix(strings.TrimPrefix(text, "map["), "]"), nil
}

func (s *show) names() error {
	s.say("\n3. By name, over both families (names are asked of the agent at %s)\n", dnsAt)
	for _, url := range []string{"http://web" + domain + s.port(":80", ":10080"), "http://shop" + domain + ":8080", "http://127.0.0.1:30080", nodeOf6} {
		if !s.has6 && (strings.Contains(url, "shop") || url == nodeOf6) {
			continue
		}
		got, err := s.met(url, 20)
		s.claim(err == nil, "20 requests to %s: %s%s", url, got, errText(err))
	}
	_, err := get(s.ctx, s.web, "http://empty"+domain+":8080")
	s.claim(err != nil && strings.Contains(err.Error(), "refused"), "a Service without endpoints refuses at once")
	return nil
}

// port returns own if this user may bind that port, else moved.
func (s *show) port(own, moved string) string {
	if l, err := net.Listen("tcp", "127.1.0.1"+own); err == nil {
		_ = l.Close()
		return own
	}
	return moved
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return "error: " + err.Error()
}

func (s *show) dies() error {
	s.say("\n4. A backend dies; its line in the manifest stays\n")
	_ = s.all[1].cmd.Process.Kill() // web-2
	<-s.all[1].done
	got, err := s.met("http://web"+domain+s.port(":80", ":10080"), 50)
	s.claim(err == nil && got == "web-1:50", "50 requests, none failed: %s%s (an endpoint that refuses is passed over)", got, errText(err))
	p, err := s.start(s.Self, "backend", "web-2", "127.1.0.2:9080")
	if err != nil {
		return err
	}
	s.all[1] = p
	return nil
}

// restarts replaces the agent while clients send requests.
func (s *show) restarts() error {
	s.say("\n5. The agent is replaced three times, by the same command, while clients ask\n")
	url := "http://127.0.0.1:30080"
	var mu sync.Mutex
	done, lost := 0, []error{}
	ctx, stop := context.WithCancel(s.ctx)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := get(s.ctx, s.web, url)
				mu.Lock()
				if done++; err != nil {
					lost = append(lost, err)
				}
				mu.Unlock()
				time.Sleep(20 * time.Millisecond) // 200 a second in all
			}
		})
	}
	err := s.replace()
	stop()
	all.Wait()
	if err != nil {
		return err
	}
	s.claim(len(lost) == 0, "%d requests meanwhile, %d failed", done, len(lost))
	got, err := s.met("http://web"+domain+s.port(":80", ":10080"), 20)
	s.claim(err == nil, "and by name, from the last agent: %s%s", got, errText(err))
	return nil
}

func (s *show) replace() error {
	for range 3 {
		next, err := s.start(s.Agent, s.args...)
		if err != nil {
			return err
		}
		if err := next.says(s.ctx, "took over"); err != nil {
			return err
		}
		if err := s.answers(); err != nil {
			return err
		}
		<-s.agent.done
		s.claim(s.agent.cmd.ProcessState.Success(), "pid %d has handed over to pid %d, and ended with its last connection", s.agent.cmd.Process.Pid, next.cmd.Process.Pid)
		s.agent = next
		time.Sleep(300 * time.Millisecond) // so that requests reach this agent
	}
	return nil
}
