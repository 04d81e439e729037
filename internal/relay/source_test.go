package relay

import (
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// mute is an endpoint that never answers: a filter drops what asks it.
func mute(t *testing.T) model.Backend {
	t.Helper()
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	fd, err := bindStream(netip.MustParseAddrPort("127.0.0.1:0"), func(fd int) error { return attach(uintptr(fd), drop) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return backend(addrPort(name))
}

// Endpoints that do not answer are each asked in the client's name and in our own, and the
// same number of them as without the client's name.
func TestSilentEndpointsInTheClientsName(t *testing.T) {
	if out, err := exec.Command("ip", "addr", "replace", "198.18.0.5/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	last := named(t, "127.0.0.1")
	f := frontend(mute(t), mute(t), mute(t), last)
	f.Backends[0].Weight = 1<<16 - 1 // with it the search begins, as good as always
	f.Relay.KeepSource = true
	r := newRelay(t, Params{})
	r.limits.dial = 200 * time.Millisecond
	at := open(t, r.Target(f), "127.0.0.1", model.TCP)
	if got, err := ask(t, "198.18.0.5", at); err != nil || got != answered(last) {
		t.Errorf("the fourth endpoint: %q, %v", got, err)
	}
	if n := r.Counts().Retried; n != 6 {
		t.Errorf("%d attempts failed, want 2 at each of 3 endpoints", n)
	}
}
