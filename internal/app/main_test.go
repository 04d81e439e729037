package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// asProgram makes this test binary the program fairlead.
const asProgram = "FAIRLEAD_TEST_AS_PROGRAM"

// TestMain: agents of these tests program a real kernel, in a namespace of their own.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(program())
	}
	os.Exit(netnstest.Main(m))
}

// program is main of cmd/fairlead.
func program() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := Command("v0.0.0-test").ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fairlead:", err)
		return ExitCode(err)
	}
	return 0
}

// patience bounds each wait; a test that is well needs a fraction of a second of it.
const patience = 60 * time.Second

// process is fairlead with some arguments.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// log is what the process has written so far.
func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// begin starts fairlead in this test's namespace; it ends with the test.
func begin(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command("/proc/self/exe", args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.start()
	return p
}

// start runs it until the test's end.
func (p *process) start() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if p.t.Failed() {
			p.t.Logf("%s wrote:\n%s", strings.Join(p.cmd.Args, " "), p.log())
		}
	})
}

// code waits for the end and gives the exit status.
func (p *process) code() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("still running after %s:\n%s", patience, p.log())
	}
	return p.cmd.ProcessState.ExitCode()
}

// terminate asks it to end and wants it to end well.
func (p *process) terminate() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if c := p.code(); c != 0 {
		p.t.Errorf("ended with status %d", c)
	}
}

// says waits until the log has the text.
func (p *process) says(text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("the log says %q", text), func() error {
		if !strings.Contains(p.log(), text) {
			return errors.New("it does not")
		}
		return nil
	})
}

// eventually waits until f succeeds.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		time.Sleep(10 * time.Millisecond) // bounded poll: another process tells nobody
	}
}

// run runs fairlead to its end.
func run(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	p := begin(t, args...)
	code = p.code()
	return code, p.log()
}
