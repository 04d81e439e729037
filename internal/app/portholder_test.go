package app

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/inspect"
)

// The process that listens on a port is found, on each family; of a port that is free there is none.
func TestPortHolder(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		port := uint16(l.Addr().(*net.TCPAddr).Port)
		comm, err := os.ReadFile("/proc/self/comm")
		if err != nil {
			t.Fatal(err)
		}
		got, want := portHolder("/proc", port), fmt.Sprintf("%s (process %d)", comm[:len(comm)-1], os.Getpid())
		if got != want {
			t.Errorf("%s: got %q, want %q", at, got, want)
		}
		_ = l.Close()
		if got := portHolder("/proc", port); got != "" {
			t.Errorf("%s is free, got %q", at, got)
		}
	}
}

// A server that does not listen is in the status, which is not well, until it listens.
func TestStatusNamesServersThatDoNotListen(t *testing.T) {
	m := newMemory()
	m.listening("metrics", nil)
	m.listening("healthz", errors.New("listen for healthz on 0.0.0.0:10256: taken"))
	s := &inspect.Status{}
	m.fill(s)
	if len(s.NotListening) != 1 || !slices.Contains(s.Unwell(), "1 server of the agent is not listening") {
		t.Errorf("not listening %q, unwell %q", s.NotListening, s.Unwell())
	}
	m.listening("healthz", nil)
	m.fill(s)
	if len(s.NotListening) != 0 || slices.Contains(s.Unwell(), "1 server of the agent is not listening") {
		t.Errorf("listens: %q, unwell %q", s.NotListening, s.Unwell())
	}
}
