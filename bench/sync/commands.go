package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	asks    = 100 // requests of each kind
	// commandsLimit bounds the whole. Audits on demand must be some time apart, which takes the largest part of it.
	commandsLimit = 30 * time.Minute
)

// size is the number of Services, and of the endpoints of each.
type size struct{ n, e int }

// commands measures a real agent's answers, over its socket, as the commands receive them.
type commands struct {
	dir string
	size
	more int // additional endpoints of the first Service
	pid  int // of the agent
}

// measureCommands starts the agent with the Services of the size and prints how long each answer takes.
func measureCommands(bin, mode string, of size, often tries, out io.Writer) error {
	n, e := of.n, of.e
	ctx, cancel := context.WithTimeout(context.Background(), commandsLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "fairlead-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c := &commands{dir: dir, size: of}
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
	fmt.Fprintf(out, "%s, %d x %d: answers over the agent's socket, ms; CPU is the agent's and its programs', for one\n%-34s %8s %8s %8s %8s %8s\n",
		mode, n, e, "", "median", "9 of 10", "longest", "goal", "CPU")
	for _, m := range []struct {
		what, goal string
		times      int
		do         func() error
	}{
		{"status", "2", asks, func() error { return ask(ctx, "/status", &inspect.Status{}) }},
		{"explain", "5", asks, func() error { return c.explain(ctx, rand.IntN(n), &inspect.Explanation{}) }},
	} {
		if err := c.report(out, m.what, m.goal, m.times, m.do); err != nil {
			return fmt.Errorf("%s: %w", m.what, err)
		}
	}
	if err := c.beside(ctx, often, out); err != nil {
		return fmt.Errorf("changes beside audits: %w", err)
	}
	if backend, is := strings.CutPrefix(mode, "iptables-"); is {
		return saveAlone(ctx, out, backend)
	}
	return nil
}

// saveAlone measures the part of an audit that is unavoidable in an iptables mode: the save programs, with their output
// discarded.
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
	_, err := fmt.Fprintf(out, "%-34s %8.2f %8s %8s %8s %8.2f\n", "(iptables-save > /dev/null alone)", milliseconds(took), "", "", "", milliseconds(cpu))
	return err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (c *commands) report(out io.Writer, what, goal string, times int, do func() error) error {
	r := row{what: what, goal: goal}
	for range times {
		if err := r.sample(c.pid, func() (time.Duration, error) {
			t0 := time.Now()
			err := do()
			return time.Since(t0), err
		}); err != nil {
			return err
		}
	}
	return r.print(out)
}

// row is the samples of one kind of measurement.
type row struct {
	what, goal string
	took       []time.Duration
	cpu        time.Duration // of all
}

// sample adds a sample of do, which returns its own duration.
func (r *row) sample(pid int, do func() (time.Duration, error)) error {
	before, err := cpuOf(pid)
	if err != nil {
		return err
	}
	took, err := do()
	if err != nil {
		return err
	}
	after, err := cpuOf(pid)
	r.took, r.cpu = append(r.took, took), r.cpu+after-before
	return err
}

func (r *row) print(out io.Writer) error {
	slices.Sort(r.took)
	n := len(r.took)
	if n == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "%-34s %8.2f %8.2f %8.2f %8s %8.2f\n", r.what, milliseconds(r.took[n/2]), milliseconds(r.took[n*9/10]), milliseconds(r.took[n-1]),
		r.goal, milliseconds(r.cpu/time.Duration(n)))
	return err
}

// cpuOf returns the user and system time so far of a process and of the children that it has waited for, to the hundredth
// of a second.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may contain blanks
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

// write writes the file of some Services.
func (c *commands) write(first int) error { return errors.Join(c.prepare(first), c.publish(first)) }

func (c *commands) path(first int) string {
	return filepath.Join(c.dir, fmt.Sprintf("%06d.yaml", first))
}

// publish replaces the file with the prepared one.
func (c *commands) publish(first int) error { return os.Rename(c.path(first)+".tmp", c.path(first)) }

// prepare writes the new file of some Services next to the current one. JSON is YAML.
func (c *commands) prepare(first int) error {
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
	return os.WriteFile(c.path(first)+".tmp", b.Bytes(), 0o600)
}

// start runs the agent until stop is called, and returns when the desired state is in the kernel.
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
