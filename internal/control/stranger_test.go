package control

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// stranger is a process of another user, who does what it is told in one word a line,
// and answers each with a line.
type stranger struct {
	t   *testing.T
	pid int
	in  io.Writer
	out io.Reader
}

const strangerEnv = "FAIRLEAD_TEST_STRANGER"

// startStranger runs this very test as another user. The test must hand over to
// beStranger first of all.
func startStranger(t *testing.T) *stranger {
	t.Helper()
	exe, err := os.ReadFile("/proc/self/exe") // the build's folder may be closed to others
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "fairlead-control-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(dir+"/test", exe, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(dir+"/test", "-test.run=^"+t.Name()+"$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), strangerEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL}
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return &stranger{t: t, pid: cmd.Process.Pid, in: in, out: out}
}

// do has the stranger do it, and fails unless its answer is want.
func (s *stranger) do(word, want string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, word+"\n"); err != nil {
		s.t.Fatal(err)
	}
	if got := readLine(s.out); got != want {
		s.t.Fatalf("the stranger was told to %s and says %q, want %q", word, got, want)
	}
}

func readLine(r io.Reader) string {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := r.Read(b); err != nil || b[0] == '\n' {
			return strings.TrimSpace(string(line))
		}
		line = append(line, b[0])
	}
}

// beStranger is the other user, until nobody tells it anything any more.
func beStranger(t *testing.T) {
	var held []net.Conn
	fd := -1
	for {
		said := ""
		switch word := readLine(os.Stdin); word {
		case "":
			return
		case "ask":
			said = strangerAsks()
		case "crowd":
			for range 200 {
				if c, err := net.Dial("unix", Name); err == nil {
					held = append(held, c)
				}
			}
			said = "there"
		case "leave":
			for _, c := range held {
				_ = c.Close()
			}
			said = "gone"
		case "bind":
			fd = strangerBinds(t)
			said = "bound"
		case "listen":
			if err := unix.Listen(fd, 0); err != nil {
				t.Fatal(err)
			}
			said = "listens"
		case "fill":
			for err := error(nil); err == nil; {
				var c net.Conn
				if c, err = net.Dial("unix", Name); err == nil {
					held = append(held, c)
				}
			}
			said = "full"
		}
		_, _ = os.Stdout.WriteString(said + "\n")
	}
}

// strangerAsks asks until it is answered: connections that it has just closed may
// still count for a moment.
func strangerAsks() string {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", Name)
		},
	}}
	for end := time.Now().Add(20 * time.Second); ; {
		resp, err := client.Get("http://fairlead/who")
		if err == nil {
			_ = resp.Body.Close()
			return resp.Status
		}
		if time.Now().After(end) {
			return err.Error()
		}
		time.Sleep(20 * time.Millisecond) // between two tries
	}
}

func strangerBinds(t *testing.T) int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: Name}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestAnotherUser may neither ask the agent nor pass for one, nor keep one from starting.
func TestAnotherUser(t *testing.T) {
	if os.Getenv(strangerEnv) != "" {
		beStranger(t)
		return
	}
	netnstest.Enter(t)
	other := startStranger(t)
	s := take(t)
	other.do("ask", "403 Forbidden")
	_ = s.Close()

	other.do("bind", "bound") // and does not listen: connecting is as if there were nobody
	if _, err := Take(t.Context(), somebody); !errors.Is(err, ErrHeld) {
		t.Errorf("with a name that is bound only: %v", err)
	}
	other.do("listen", "listens")
	var squatted *SquattedError
	if _, err := Take(t.Context(), somebody); !errors.As(err, &squatted) || squatted.UID != 65534 || squatted.PID != other.pid {
		t.Errorf("with a squatter: %v", err)
	}
	other.do("fill", "full") // it never accepts, and nobody else can connect
	if _, err := Take(t.Context(), somebody); !errors.Is(err, ErrHeld) {
		t.Errorf("with a squatter whose queue is full: %v", err)
	}
}

// TestCrowdOfAnotherUser: connections of users who may not ask take no room from root.
func TestCrowdOfAnotherUser(t *testing.T) {
	if os.Getenv(strangerEnv) != "" {
		beStranger(t)
		return
	}
	netnstest.Enter(t)
	other := startStranger(t)
	take(t)
	other.do("crowd", "there")
	who, err := Ask(t.Context())
	for tries := 1; err == nil && who.Version == "" && tries < 3; tries++ {
		who, err = Ask(t.Context())
	}
	if err != nil || who.Version != somebody.Version {
		t.Errorf("beside a stranger's 200 connections: %+v, %v", who, err)
	}
	other.do("leave", "gone")
	other.do("ask", "403 Forbidden") // its room is free again
}
