package app

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An agent of userspace mode that is stopped for a while, as on a machine that is frozen,
// goes on as if nothing had been: who has asked meanwhile is answered, and old clients keep
// their connections.
func TestStoppedForAWhile(t *testing.T) {
	p := begin(t, userspaceArgs(t)...)
	p.says("in sync")
	var want string
	eventually(t, "the shop answers", func() (err error) { want, err = request(); return err })
	stream, flow := open(t, "tcp"), open(t, "udp")
	ask(t, stream)
	met := ask(t, flow)
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for range 50 {
		asking.Go(func() {
			if got, err := request(); err != nil || got != want {
				t.Errorf("who asked meanwhile meets %q, %v, want %q", got, err, want)
			}
		})
	}
	time.Sleep(2 * time.Second) // a stopped agent gives no sign to wait for; the clients of above are to wait meanwhile
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	asking.Wait()
	if got := ask(t, stream); got != want {
		t.Errorf("the old connection meets %q, want %q", got, want)
	}
	if got := ask(t, flow); got != met {
		t.Errorf("the UDP client meets %q, before it was %q", got, met)
	}
	p.terminate()
}

// With nothing that can be written an agent of userspace mode runs; a file that it was told
// to write is named, with its flag, and Services are served all the same.
func TestNothingCanBeWritten(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it remounts everything read-only, in a mount namespace of its own")
	}
	args := append(userspaceArgs(t), "--userspace-map", filepath.Join(t.TempDir(), "map"))
	const readOnly = `for m in $(cut -d' ' -f5 /proc/self/mountinfo | grep -vE '^/(proc|sys|dev)'); do mount -o remount,bind,ro "$m"; done 2>/dev/null # others' mounts come and go
for f in "$0" /x /tmp/x /run/x /var/tmp/x; do touch "$f" 2>/dev/null && exit 8; done
exec /proc/self/fd/3 "$@"`
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close() //nolint:errcheck // it was read only
	p := &process{t: t, done: make(chan struct{})}
	p.cmd = exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", readOnly, args[len(args)-1]}, args...)...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles = append(os.Environ(), asProgram+"=1"), p, p, []*os.File{self}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.start()
	p.says("in sync")
	eventually(t, "the shop answers", func() error { _, err := request(); return err })
	eventually(t, "the file that cannot be written is told", func() error {
		for line := range strings.Lines(p.log()) {
			if strings.Contains(line, "--userspace-map") && strings.Contains(line, "read-only") {
				return nil
			}
		}
		return errors.New("it is not")
	})
	p.terminate()
}
