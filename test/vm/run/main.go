// Command run runs a program under a stock kernel: run -kernel 6.1 -- PROGRAM ARGS... Its exit code is the program's, 125 if there is none.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/vm"
)

func main() {
	var cfg vm.Config
	var limit time.Duration
	flag.StringVar(&cfg.Kernel, "kernel", "6.1", "6.1 or 6.12")
	flag.StringVar(&cfg.Init, "init", "bin/vm-init", "the guest's PID 1, built from test/vm/init")
	flag.BoolVar(&cfg.Icount, "icount", false, "count instructions for a clock: for ratios only")
	flag.BoolVar(&cfg.Steady, "steady", false, "count instructions for a clock while there is something to do")
	flag.IntVar(&cfg.Memory, "memory", 0, "MiB")
	flag.DurationVar(&limit, "limit", 20*time.Minute, "end the machine after this time")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: run [-kernel 6.1] [-icount] [-limit 20m] -- PROGRAM ARGS...")
		os.Exit(2)
	}
	here, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(125)
	}
	cfg.Cache = os.Getenv("FAIRLEAD_CACHE")
	if cfg.Cache == "" {
		cfg.Cache = filepath.Join(here, ".cache")
	}
	cfg.Output = os.Stdout
	cfg.Order = vm.Order{Args: flag.Args(), Dir: here, Repo: here, Env: append(passed(), "FAIRLEAD_CACHE="+cfg.Cache)}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = vm.Run(ctx, cfg)
	var exit vm.ExitError
	switch {
	case err == nil:
		return
	case errors.As(err, &exit):
		os.Exit(int(exit))
	}
	fmt.Fprintln(os.Stderr, "run:", err)
	os.Exit(125)
}

// passed returns the variables of this project that mean the same inside the guest.
func passed() (out []string) {
	for _, name := range []string{"FAIRLEAD_BIN", "FAIRLEAD_FAULTS", "FAIRLEAD_VM_FULL"} {
		if v, set := os.LookupEnv(name); set {
			out = append(out, name+"="+v)
		}
	}
	return out
}
