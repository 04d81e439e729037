// Command init is PID 1 of a test kernel: it loads what it needs to reach the host's files, makes them its root, runs the order
// and prints the exit code on the console.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/vm"
)

func main() {
	fmt.Println("\nVM-BEGIN")
	code := 125
	if o, err := boot(); err != nil {
		fmt.Println("test kernel: cannot begin:", err)
	} else {
		code = run(o)
	}
	fmt.Printf("VM-EXIT %d\n", code)
	unix.Sync()
	time.Sleep(50 * time.Millisecond) // the console is slow: wait for its last line
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func boot() (*vm.Order, error) {
	raw, err := os.ReadFile("/order.json")
	if err != nil {
		return nil, err
	}
	var o vm.Order
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	if err := loadModules(); err != nil {
		return nil, err
	}
	if err := mountRoot(&o); err != nil {
		return nil, err
	}
	return &o, settle(&o)
}

// loadModules loads the modules that 9p needs, in the order that fetch.sh found.
func loadModules() error {
	names, err := os.ReadFile("/m/order")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(names)) {
		content, err := os.ReadFile("/m/" + name)
		if err != nil {
			return err
		}
		if err := unix.InitModule(content, ""); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

type mount struct{ what, at, kind, options string }

const over9p = "trans=virtio,version=9p2000.L,msize=512000,"

// mountRoot makes the host's file system the root; folders that must be writable are in memory.
func mountRoot(o *vm.Order) error {
	if err := (mount{"host", "/newroot", "9p", over9p + "ro,cache=loose"}).do(unix.MS_RDONLY); err != nil {
		return err
	}
	for _, m := range []mount{
		{"proc", "/newroot/proc", "proc", ""}, {"sys", "/newroot/sys", "sysfs", ""}, {"dev", "/newroot/dev", "devtmpfs", ""},
		{"run", "/newroot/run", "tmpfs", ""}, {"tmp", "/newroot/tmp", "tmpfs", ""}, {"vartmp", "/newroot/var/tmp", "tmpfs", ""},
		{"mnt", "/newroot/mnt", "tmpfs", ""}, {"cgroup", "/newroot/sys/fs/cgroup", "cgroup2", ""},
	} {
		if err := m.do(0); err != nil {
			return err
		}
	}
	for tag, at := range map[string]string{"cache": o.Cached, "repo": o.Repo} {
		if err := os.MkdirAll("/newroot"+at, 0o755); err != nil && !errors.Is(err, unix.EROFS) {
			return err
		}
		if err := (mount{tag, "/newroot" + at, "9p", over9p + "cache=mmap"}).do(0); err != nil {
			return err
		}
	}
	if err := os.Chdir("/newroot"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("make the host's files the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

func (m mount) do(flags uintptr) error {
	if err := unix.Mount(m.what, m.at, m.kind, flags, m.options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", m.what, m.at, err)
	}
	return nil
}

// settle prepares what programs expect of a machine.
func settle(o *vm.Order) error {
	for _, dir := range []string{"/dev/shm", "/dev/pts", "/run/netns", "/run/lock", "/run/m/lib"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, m := range []mount{{"shm", "/dev/shm", "tmpfs", ""}, {"pts", "/dev/pts", "devpts", ""}} {
		if err := m.do(0); err != nil {
			return err
		}
	}
	if err := os.Symlink(o.Modules, "/run/m/lib/modules"); err != nil {
		return err
	}
	helper := "#!/bin/sh\nexec /sbin/modprobe -d /run/m \"$@\"\n"
	if err := os.WriteFile("/run/modprobe", []byte(helper), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/kernel/modprobe", []byte("/run/modprobe"), 0); err != nil {
		return err
	}
	// The kernel cannot load these by itself when a network namespace is the first to need them. sctp is left out: it would abort
	// each association that the lab's own servers answer, if its answer came first.
	for _, name := range []string{"veth", "dummy", "ipv6", "nf_tables", "nf_conntrack_netlink", "nf_flow_table", "ip_tables", "iptable_nat",
		"ip6table_nat", "ip_set", "ip_vs", "tun"} {
		if out, err := exec.Command("/run/modprobe", name).CombinedOutput(); err != nil {
			fmt.Printf("test kernel: no module %s: %s\n", name, strings.TrimSpace(string(out)))
		}
	}
	// The default of a guest with little memory is a table of a few thousand flows.
	for path, text := range map[string]string{"/sys/module/nf_conntrack/parameters/hashsize": "65536", "/proc/sys/net/netfilter/nf_conntrack_max": "1000000"} {
		if err := os.WriteFile(path, []byte(text), 0); err != nil {
			fmt.Println("test kernel: flows stay few:", err)
		}
	}
	return exec.Command("/sbin/ip", "link", "set", "lo", "up").Run()
}

// run runs the order and returns its exit code.
func run(o *vm.Order) int {
	// A host that is busy with other work during the measurement appears slow, and the guest then appears fast. An emulator is always
	// at least ten times slower, and a wait that ends early fails a test.
	factor := max(10, float64(vm.Work())/float64(max(o.Host, 1)))
	var name unix.Utsname
	_ = unix.Uname(&name) // only for the line that follows
	fmt.Printf("test kernel: %s, %.1f times slower than the host\n", unix.ByteSliceToString(name.Release[:]), factor)
	cmd := exec.Command(o.Args[0], o.Args[1:]...)
	if !filepath.IsAbs(o.Args[0]) {
		cmd.Path = filepath.Join(o.Dir, o.Args[0])
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.Dir, os.Stdout, os.Stderr
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/run", "TMPDIR=/tmp", "TERM=dumb",
		fmt.Sprintf("FAIRLEAD_PATIENCE=%.1f", factor)}, o.Env...)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	fmt.Println("test kernel:", err)
	return 125
}
