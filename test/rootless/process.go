package rootless

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/patience"
)

// Serve runs one backend: it answers each request with its name, until ctx ends.
func Serve(ctx context.Context, name, at string) error {
	s := &http.Server{Addr: at, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, name)
	})}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// process is a program that this package started, with its output.
type process struct {
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

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func start(program string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	return p, nil
}

// end sends SIGINT and waits for the end of the process.
func (p *process) end() {
	_ = p.cmd.Process.Signal(os.Interrupt)
	<-p.done
}

// says waits until the process has printed the text.
func (p *process) says(ctx context.Context, text string) error {
	return until(ctx, func() error {
		if strings.Contains(p.log(), text) {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("it has ended, and wrote:\n%s", p.log())
		default:
			return fmt.Errorf("it does not say %q:\n%s", text, p.log())
		}
	})
}

// until retries check until it succeeds, for at most a minute on a usual machine.
func until(ctx context.Context, check func() error) error {
	ctx, stop := context.WithTimeout(ctx, patience.Of(time.Minute))
	defer stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// get sends one request, on its own connection.
func get(ctx context.Context, c *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	return string(text), err
}
