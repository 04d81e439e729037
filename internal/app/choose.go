package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/choose"
	"github.com/fairlead/fairlead/internal/config"
	kerneliptables "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/takeover"
)

// auto is the value of --proxy-mode that leaves the choice to the package choose.
const auto = "auto"

// modesAndAuto are the values of --proxy-mode.
func modesAndAuto() []string { return append(modes(), auto) }

// choice collects the facts and returns the decision of the package choose. backend is the
// configured backend of iptables; "" is the one that the host uses.
func choice(ctx context.Context, t *trial, backend string) (choose.Choice, error) {
	q, err := facts(ctx, backend)
	if err != nil {
		return choose.Choice{}, err
	}
	q.Try = func(mode string) choose.Try { return t.try(ctx, mode) }
	return choose.Mode(q)
}

// facts returns all facts for the choice except the results of trying modes.
func facts(ctx context.Context, backend string) (choose.Question, error) {
	q := choose.Question{Backend: backend}
	if backend == "" {
		limited, cancel := context.WithTimeout(ctx, detectLimit)
		defer cancel()
		if b, err := kerneliptables.Detect(limited); err == nil {
			q.Backend = string(b)
		}
	}
	k, err := openKernels()
	if err != nil {
		return q, nil //nolint:nilerr // without the right to look, nothing of ours can be here either
	}
	defer closeKernels(k)
	found, err := k.Find(ctx, takeover.Fairlead)
	if err != nil && !errors.Is(err, unix.EPERM) {
		return q, fmt.Errorf("check for rules of fairlead in this network namespace: %w", err)
	}
	for i := range found {
		q.Left = append(q.Left, string(found[i].Place))
	}
	return q, nil
}

func closeKernels(k takeover.Kernels) {
	if c, ok := k.NFT.(io.Closer); ok {
		_ = c.Close()
	}
	for _, at := range k.IPTables {
		if c, ok := at.(io.Closer); ok {
			_ = c.Close()
		}
	}
}

// plainConfig is what modes are tried with before the configuration is known: a try needs none of it.
func plainConfig() *config.Config {
	return &config.Config{SyncPeriod: 30 * time.Second}
}
