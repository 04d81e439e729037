package fastpath

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/test/patience"
)

func flowtables(t *testing.T) {
	t.Helper()
	netnstest.Enter(t)
	probe := exec.Command("nft", "add table inet probe; add flowtable inet probe f { hook ingress priority 0; }; delete table inet probe")
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("needs a kernel with flowtables: %s", out) // test/vm/tests.txt has it run under one that does
	}
}

// TestCarries: a kernel that is well passes, and nothing is left behind.
func TestCarries(t *testing.T) {
	flowtables(t)
	before, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	if err := Test(t.Context(), Params{Patience: patience.Of}); err != nil {
		t.Error(err)
	}
	after, err := netlink.LinkList()
	if err != nil || len(after) != len(before) {
		t.Errorf("%d links before, %d after, %v", len(before), len(after), err)
	}
}

// TestStandsStill: a connection that is taken over and then stands still is a fault of the kernel, and no matter of the place.
func TestStandsStill(t *testing.T) {
	flowtables(t)
	patient := patience.Of
	limit := func(d time.Duration) time.Duration { return patient(d) }
	err := Test(t.Context(), Params{Patience: limit, Halfway: func() error {
		patient = func(d time.Duration) time.Duration { return d } // nothing comes from here on
		l, err := netlink.LinkByName("s0")
		if err != nil {
			return err
		}
		// What the fast path sends out is lost, as by a kernel that sends it with other addresses.
		return errors.Join(netlink.QdiscAdd(&netlink.Netem{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Loss: 4294967295}))
	}})
	var un *UntestableError
	if err == nil || errors.As(err, &un) || !strings.Contains(err.Error(), "IPv4: a translated TCP connection stalls on the fast path") {
		t.Errorf("%v", err)
	}
}

// TestNoFlowtables: here the rules are refused, which is no reason to say that nobody knows.
func TestNoFlowtables(t *testing.T) {
	if out, err := exec.Command("unshare", "-n", "nft", "add table inet probe; add flowtable inet probe f { hook ingress priority 0; }").CombinedOutput(); err == nil {
		t.Skipf("this kernel has flowtables: %s", out) // the tests above are for it
	}
	err := Test(t.Context(), Params{})
	var un *UntestableError
	if err == nil || errors.As(err, &un) || !strings.Contains(err.Error(), "write the rules of the test") {
		t.Errorf("%v", err)
	}
}

// TestUntestable: without the right to make a namespace nobody knows.
func TestUntestable(t *testing.T) {
	if unix.Getuid() != 0 {
		t.Skip("is for root, who can become nobody") // as who the tests run
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestAsNobody$", "-test.v")
	cmd.Env = []string{"FASTPATH_AS_NOBODY=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestAsNobody") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAsNobody is run by TestUntestable.
func TestAsNobody(t *testing.T) {
	if unix.Getuid() == 0 {
		t.Skip("TestUntestable runs it as nobody") // here it has every right
	}
	var un *UntestableError
	if err := Test(t.Context(), Params{}); !errors.As(err, &un) || !errors.Is(err, unix.EPERM) {
		t.Errorf("%v", err)
	}
}
