package nftables

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnsupported: nfnetlink answers EINVAL where the kernel has no nf_tables, and EPERM without CAP_NET_ADMIN. An interrupted
// or timed-out read says nothing about the kernel.
func TestUnsupported(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EINVAL: true, unix.EPERM: true, unix.EPROTONOSUPPORT: true, unix.EINTR: false, unix.ENOBUFS: false, errors.New("timeout"): false,
	} {
		if got := Unsupported(fmt.Errorf("dump tables: %w", err)); got != want {
			t.Errorf("%v: %t, want %t", err, got, want)
		}
	}
	if Unsupported(nil) {
		t.Error("no error is unsupported")
	}
}
