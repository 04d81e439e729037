package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/inspect"
)

const (
	perFile = 100 // Services in one file of manifests: a change rewrites one
	asks    = 100 // questions of each kind
	changes = 10  // of each sort
	// commandsLimit bounds the whole: to read the manifests takes most of it.
	commandsLimit = 10 * time.Minute
)

// commands measures a real agent's answers, over its socket, as the commands get them.
type commands struct {
	dir  string
	n, e int
	more int // endpoints more of the first Service
	pid  int // of the agent
}

// measureCommands starts the agent with n Services and prints what each answer takes.
func measureCommands(bin, mode string, n, e int, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandsLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "fairlead-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c := &commands{dir: dir, n: n, e: e}
	for first := 0; first < n; first += perFile {
		if err := c.write(first); err != nil {
			return err
		}
	}
	stop, err := c.start(ctx, bin, mode)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "%s, %d x %d: answers over the agent's socket, ms; CPU is the agent's and its programs', for one\n%-34s %8s %8s %8s %8s\n",
		mode, n, e, "", "median", "longest", "goal", "CPU")
	for _, m := range []struct {
		what, goal string
		times      int
		do         func() error
	}{
		{"status", "2", asks, func() error { return ask(ctx, "/status", &inspect.Status{}) }},
		{"explain", "5", asks, func() error { return c.explain(ctx, rand.IntN(n), &inspect.Explanation{}) }},
		{"a change", "", changes, func() error { return c.change(ctx) }},
		{"audit, first", "300", 1, func() error { return audited(ctx) }},
		{"a change beside the look of an audit", "", 1, func() error { return c.changeBesideAudit(ctx) }},
	} {
		if err := c.report(out, m.what, m.goal, m.times, m.do); err != nil {
			return fmt.Errorf("%s: %w", m.what, err)
		}
	}
	if backend, is := strings.CutPrefix(mode, "iptables-"); is {
		return saveAlone(ctx, out, backend)
	}
	return nil
}

// audited asks for an audit, which must find all as it should be.
func audited(ctx context.Context) error {
	var a inspect.Audit
	if err := ask(ctx, "/audit", &a); err != nil {
		return err
	}
	if !a.Clean() || a.Objects == 0 {
		return fmt.Errorf("%d objects, %d missing, %d different, %d foreign", a.Objects, a.Missing, a.Different, a.Foreign)
	}
	return nil
}

// saveAlone measures what an audit cannot do without in an iptables mode: the programs, printing to nobody.
func saveAlone(ctx context.Context, out io.Writer, backend string) error {
	var took, cpu time.Duration
	for _, program := range []string{"iptables-", "ip6tables-"} {
		cmd := exec.CommandContext(ctx, program+backend+"-save")
		t0 := time.Now()
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", cmd.Path, err)
		}
		took += time.Since(t0)
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	_, err := fmt.Fprintf(out, "%-34s %8.2f %8.2f %8s %8.2f\n", "(iptables-save > /dev/null alone)", milliseconds(took), milliseconds(took), "", milliseconds(cpu))
	return err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (c *commands) report(out io.Writer, what, goal string, times int, do func() error) error {
	var took []time.Duration
	before, err := cpuOf(c.pid)
	if err != nil {
		return err
	}
	for range times {
		t0 := time.Now()
		if err := do(); err != nil {
			return err
		}
		took = append(took, time.Since(t0))
	}
	after, err := cpuOf(c.pid)
	if err != nil {
		return err
	}
	slices.Sort(took)
	_, err = fmt.Fprintf(out, "%-34s %8.2f %8.2f %8s %8.2f\n", what, milliseconds(took[len(took)/2]), milliseconds(took[len(took)-1]), goal, milliseconds((after-before)/time.Duration(times)))
	return err
}

// cpuOf is the user and system time so far of a process and of those that it has waited for, to the hundredth of a second.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold blanks
	fields, ticks := strings.Fields(rest), 0
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime (proc(5) counts from 3)
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

func ask(ctx context.Context, path string, into any) error {
	body, err := control.Get(ctx, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func (c *commands) explain(ctx context.Context, i int, e *inspect.Explanation) error {
	if err := ask(ctx, "/explain?"+url.Values{"q": {fmt.Sprintf("default/svc-%d", i)}}.Encode(), e); err != nil {
		return err
	}
	if e.Outcome != "forward" || e.Kernel == nil || len(e.Kernel.Differ) > 0 || e.Kernel.Err != "" {
		return fmt.Errorf("svc-%d: %s; in the kernel: %+v", i, e.Summary, e.Kernel)
	}
	return nil
}

// change adds an endpoint to the first Service, and waits until the agent says that it is
// in the kernel.
func (c *commands) change(ctx context.Context) error {
	c.more++
	if err := c.write(0); err != nil {
		return err
	}
	for {
		var e inspect.Explanation
		if err := c.explain(ctx, 0, &e); err != nil {
			return err
		}
		if len(e.Endpoints) == c.e+c.more && e.Kernel.Pending == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		time.Sleep(time.Millisecond) // bounded poll: the agent tells nobody
	}
}

func (c *commands) changeBesideAudit(ctx context.Context) error {
	audited := make(chan error, 1)
	go func() { audited <- ask(ctx, "/audit?repair=false", &inspect.Audit{}) }()
	time.Sleep(20 * time.Millisecond) // the look has begun by then
	return c.change(ctx)
}

// write makes the file of some Services. JSON is YAML.
func (c *commands) write(first int) error {
	var b bytes.Buffer
	for i := first; i < min(first+perFile, c.n); i++ {
		s, sl := service(i), slice(i, i*c.e, c.e)
		if i == 0 && c.more > 0 {
			sl = slice(i, 0, c.e+c.more)
		}
		s.TypeMeta = metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Service"}
		sl.TypeMeta = metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"}
		for _, o := range []any{s, sl} {
			text, err := json.Marshal(o)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "---\n%s\n", text)
		}
	}
	path := filepath.Join(c.dir, fmt.Sprintf("%06d.yaml", first))
	if err := os.WriteFile(path+".tmp", b.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// start runs the agent until stop is called, and returns when it has everything in the
// kernel.
func (c *commands) start(ctx context.Context, bin, mode string) (stop func(), err error) {
	args := []string{"run", "--manifests", c.dir, "--hostname-override", "node0", "--conntrack-max-per-core=0"}
	proxy, backend, chosen := strings.Cut(mode, "-")
	if args = append(args, "--proxy-mode", proxy); chosen {
		args = append(args, "--iptables-backend", backend)
	}
	cmd := exec.Command(bin, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	stop = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	for {
		var s inspect.Status
		err := ask(ctx, "/status", &s)
		if err == nil && s.Services == c.n && s.Kernel.Pending == 0 && !s.Kernel.Synced.IsZero() && s.Kernel.Healthy {
			return stop, nil
		}
		select {
		case <-ctx.Done():
			stop()
			return nil, fmt.Errorf("the agent is not in sync: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
