package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Config configures what to run, and under which kernel.
type Config struct {
	Kernel string   // a folder of Cache/kernels: "6.1" or "6.12"
	Cache  string   // the folder that fetch.sh fills
	Init   string   // the guest's PID 1, a static binary (package test/vm/init)
	Order  Order    // Args, Dir, Env, Repo; the rest is filled in
	Output *os.File // of the emulator too, which writes to it by itself
	Memory int      // MiB; 0 = 1536
	// Icount makes the guest's clock count instructions. Measured times are then repeatable to 1-3 %
	// whatever else this machine does, and are only good for ratios.
	Icount bool
	// Steady makes the clock count instructions as well, but only while there is work: waits last as
	// long as on the host. However little of the host's time the machine gets, it is always as fast
	// for its programs, so that limits hold and polls and ticks are not wasted.
	Steady bool
}

// ExitError is the exit code of a program in the guest that ended with another code than 0.
type ExitError int

// Error implements error.
func (e ExitError) Error() string {
	return "the program in the test kernel ended with exit code " + strconv.Itoa(int(e))
}

// The guest prints where the program's output begins, and at the end its exit code.
const (
	beginMark = "VM-BEGIN"
	exitMark  = "VM-EXIT "
)

// ErrNoExit: the guest ended without reporting an exit code: it did not boot, it crashed, or ctx
// ended.
var ErrNoExit = errors.New("the test kernel ended without an exit code")

// A machine that has not started the program after bootLimit is ended and started again: nothing of
// the order has run then. Ten seconds are usual; eighty were measured next to thirty busy programs.
const (
	bootLimit = 3 * time.Minute
	bootTries = 3
)

// errNoBoot: the program never began.
var errNoBoot = errors.New("the test kernel did not boot")

// Run boots the kernel, runs the order to its end and returns its exit code as an ExitError. The
// end of ctx ends the machine.
func Run(ctx context.Context, cfg Config) error {
	for try := 1; ; try++ {
		err := runOnce(ctx, cfg)
		if !errors.Is(err, errNoBoot) || ctx.Err() != nil || try == bootTries {
			return err
		}
		fmt.Fprintf(cfg.Output, "%v; trying again\n", err)
	}
}

func runOnce(ctx context.Context, cfg Config) error {
	dir := filepath.Join(cfg.Cache, "kernels", cfg.Kernel)
	boot, err := os.MkdirTemp("", "fairlead-vm-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(boot) }() // a leftover in the temporary folder does no harm
	initrd := filepath.Join(boot, "initrd")
	if err := writeInitrd(initrd, dir, &cfg); err != nil {
		return fmt.Errorf("prepare kernel %s: %w", cfg.Kernel, err)
	}
	booting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	cmd := exec.CommandContext(booting, "qemu-system-x86_64", arguments(dir, initrd, &cfg)...)
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = cfg.Output
	serial, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the emulator (test/vm/fetch.sh installs it): %w", err)
	}
	limit := time.AfterFunc(bootLimit, giveUp)
	begun := false
	code, told := relay(serial, cfg.Output, func() { begun = true; limit.Stop() })
	ended := cmd.Wait()
	switch {
	case told && code == 0:
		return nil
	case told:
		return ExitError(code)
	}
	if !begun {
		return errors.Join(ErrNoExit, errNoBoot, ended, ctx.Err())
	}
	return errors.Join(ErrNoExit, ended, ctx.Err())
}

// relay copies what the program prints to the guest's console, and finds the exit code after it. It
// calls started when the program begins. If the program never began, relay copies the output of the
// boot. told reports whether there was an exit code.
func relay(serial io.Reader, out io.Writer, started func()) (code int, told bool) {
	var boot strings.Builder
	begun := false
	lines := bufio.NewReader(serial)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		text, isExit := strings.CutPrefix(line, exitMark)
		switch n, bad := strconv.Atoi(strings.TrimSpace(text)); {
		case isExit && bad == nil:
			code, told = n, true
		case !begun && strings.HasSuffix(line, beginMark): // the firmware leaves bytes in front
			begun = true
			started()
		case told: // the kernel's last messages
		case !begun:
			boot.WriteString(line + "\n")
		case line != "" || err == nil:
			fmt.Fprintln(out, line)
		}
		if err == nil {
			continue
		}
		if !begun {
			fmt.Fprint(out, boot.String())
		}
		return code, told
	}
}

func writeInitrd(path, dir string, cfg *Config) error {
	releases, err := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
	if err != nil || len(releases) != 1 {
		return fmt.Errorf("want one folder in %s/lib/modules (test/vm/fetch.sh makes it): %w", dir, err)
	}
	o := cfg.Order
	o.Modules, o.Release, o.Host, o.Cached = filepath.Dir(releases[0]), filepath.Base(releases[0]), Work(), cfg.Cache
	order, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var a archive
	for _, name := range [...]string{"proc", "dev", "newroot", "m"} {
		a.dir(name)
	}
	a.file("order.json", order)
	init, err := os.ReadFile(cfg.Init)
	if err != nil {
		return err
	}
	a.file("init", init)
	modules := filepath.Join(dir, "boot-modules")
	names, err := os.ReadFile(filepath.Join(modules, "order"))
	if err != nil {
		return err
	}
	a.file("m/order", names)
	for _, name := range strings.Fields(string(names)) {
		content, err := os.ReadFile(filepath.Join(modules, name))
		if err != nil {
			return err
		}
		a.file("m/"+name, content)
	}
	return os.WriteFile(path, a.bytes(), 0o600)
}

func arguments(dir, initrd string, cfg *Config) []string {
	memory := cfg.Memory
	if memory == 0 {
		memory = 1536
	}
	share := func(tag, path, more string) string {
		return fmt.Sprintf("local,path=%s,mount_tag=%s,security_model=none,multidevs=remap%s", path, tag, more)
	}
	args := []string{"-accel", "tcg", "-cpu", processor(cfg), "-smp", "1", "-m", strconv.Itoa(memory),
		"-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-net", "none",
		"-kernel", filepath.Join(dir, "vmlinuz"), "-initrd", initrd,
		"-virtfs", share("host", "/", ",readonly=on"), "-virtfs", share("repo", cfg.Order.Repo, ""), "-virtfs", share("cache", cfg.Cache, ""),
		"-append"}
	// mitigations are off: they cost an emulator time and protect nothing here.
	const always = "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off "
	if cfg.Icount {
		return append(args, always+"tsc=reliable", "-icount", "shift=1,sleep=off")
	}
	if cfg.Steady {
		return append(args, always+lean+"tsc=reliable no_timer_check nowatchdog", "-icount", "shift=0,sleep=on")
	}
	// The kernel measures the rate of the TSC at boot. On a busy machine the result is wrong by
	// factors of ten and more, and so is the kernel's clock: waits last minutes or nothing. The other
	// timer has a known frequency.
	return append(args, always+"tsc=unstable clocksource=acpi_pm no_timer_check nowatchdog")
}

// lean turns off what an emulator does slowly; timers fire with the tick, 250 times a second.
// Together this saves a machine a quarter of the host's time.
const lean = "highres=off nohz=off init_on_alloc=0 clearcpuid=rep_good rcupdate.rcu_expedited=1 apparmor=0 hardened_usercopy=off " +
	"randomize_kstack_offset=off cgroup_disable=memory "

// processor leaves out features that an emulator does slowly: string instructions by byte, and the
// guards of user memory. It keeps AVX2: the kernel uses it to look up intervals over
// concatenations, here as on the machines of users.
func processor(cfg *Config) string {
	if cfg.Steady {
		return "max,la57=off,-erms,-fsrm,-smap,-smep"
	}
	return "max,la57=off"
}
