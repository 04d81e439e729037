package health

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestMain runs the tests of this package in a network namespace of their own,
// because they open real sockets: no port of this machine is touched, and the
// ports are always free.
func TestMain(m *testing.M) {
	const inside = "FAIRLEAD_TEST_IN_NETNS"
	if os.Getenv(inside) == "" {
		os.Exit(again(inside + "=1"))
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil && lo.Attrs().Flags&1 != 0 {
		err = fmt.Errorf("lo is up already: not a new namespace")
	}
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare namespace:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func again(env string) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 { // a user namespace gives the right to make a network namespace
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests in a network namespace:", err)
		return 1
	}
	return 0
}
