package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/sysctl"
)

// applySysctls sets conntrack's limits. Failures are only logged: in a user
// namespace the agent may not set most of them (#92863).
func applySysctls(cfg *config.Config) []sysctl.Change {
	c := cfg.Conntrack
	changes := sysctl.ApplyConntrack(sysctl.New(), sysctl.Conntrack{
		MaxPerCore: c.MaxPerCore, Min: c.Min, TCPEstablished: c.TCPEstablished, TCPCloseWait: c.TCPCloseWait,
		TCPBeLiberal: c.TCPBeLiberal, UDP: c.UDP, UDPStream: c.UDPStream,
	}, runtime.NumCPU())
	if cfg.Mode == ipvs.Name {
		changes = append(changes, sysctl.IPVS(sysctl.New(), newerThan58(), cfg.IPVS.StrictARP)...)
	}
	return changes
}

// newerThan58 reports whether the kernel is Linux 5.9 or later; true if the release is unknown.
func newerThan58() bool {
	var name unix.Utsname
	var major, minor int
	if err := unix.Uname(&name); err != nil {
		return true
	}
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); n < 2 {
		return true
	}
	return major > 5 || major == 5 && minor > 8
}

// initSysctls is --init-only: the privileged part, with failures that count.
func initSysctls(cfg *config.Config, log *slog.Logger) error {
	var errs []error
	for _, c := range applySysctls(cfg) {
		logSysctl(log, c)
		if c.Err != nil {
			errs = append(errs, fmt.Errorf("set %s: %w", c.Name, c.Err))
		}
	}
	return errors.Join(errs...)
}

// logSysctls logs what was set. Sysctls that the agent may not set are logged once,
// in one line, at level Info: in a container /proc/sys is usually read-only, and
// then the host's values hold.
func logSysctls(log *slog.Logger, changes []sysctl.Change) {
	var left []string
	for _, c := range changes {
		if notOurs(c.Err) {
			left = append(left, fmt.Sprintf("%s=%s", c.Name, c.To))
			continue
		}
		logSysctl(log, c)
	}
	if len(left) > 0 {
		log.Info("sysctls are read-only in this container or user namespace; keeping the host's values", "wanted", strings.Join(left, " "))
	}
}

// notOurs reports whether a sysctl is read-only here or belongs to another namespace.
func notOurs(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
}

func logSysctl(log *slog.Logger, c sysctl.Change) {
	if c.Err != nil {
		log.Warn("cannot set a sysctl", "name", c.Name, "value", c.To, "error", c.Err)
		return
	}
	log.Log(context.Background(), levelTurn, "set a sysctl", "name", c.Name, "from", c.From, "to", c.To)
}

func setOOMScore(score int, log *slog.Logger) {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(score)), 0o600); err != nil {
		log.Log(context.Background(), levelTurn, "cannot set the OOM score", "score", score, "error", err)
	}
}
