package netnstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Main runs all tests of a package in a separate network namespace, whose
// loopback device is up, and returns the exit status. It is for tests whose code runs
// on goroutines that cannot be moved into a namespace individually.
func Main(m *testing.M) int {
	const inside = "FAIRLEAD_TEST_IN_NETNS" // "new", then the namespace that is ready
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		fmt.Fprintln(os.Stderr, "read the namespace:", err)
		return 1
	}
	switch os.Getenv(inside) {
	case "":
		return again(inside + "=new")
	case here: // a worker of -fuzz, started by the process in the namespace
		return m.Run()
	}
	if err := loopbackUp(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the namespace:", err)
		return 1
	}
	if err := os.Setenv(inside, here); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the namespace:", err)
		return 1
	}
	return m.Run()
}

// again runs this program with the same arguments in a new namespace.
func again(env string) int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 { // in a user namespace the process may create a network namespace
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

// loopbackUp sets the loopback device up. It fails if the device is up already: then this is not a new namespace.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, lo); err != nil {
		return err
	}
	if lo.Uint16()&unix.IFF_UP != 0 {
		return errors.New("lo is up already: not a new namespace")
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}
