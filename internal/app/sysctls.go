package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/kernel/sysctl"
)

// applySysctls sets conntrack's limits. Failures are for the log: in a user
// namespace most of them are not ours to set (#92863).
func applySysctls(cfg *config.Config) []sysctl.Change {
	c := cfg.Conntrack
	return sysctl.ApplyConntrack(sysctl.New(), sysctl.Conntrack{
		MaxPerCore: c.MaxPerCore, Min: c.Min, TCPEstablished: c.TCPEstablished, TCPCloseWait: c.TCPCloseWait,
		TCPBeLiberal: c.TCPBeLiberal, UDP: c.UDP, UDPStream: c.UDPStream,
	}, runtime.NumCPU())
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
