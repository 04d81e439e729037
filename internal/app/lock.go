package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/control"
)

// takeNamespace makes this process the agent of its network namespace: two of them
// would repair each other's rules without end. It returns nil, without an error, if
// a program that cannot be an agent holds the socket: a user that may run a process in
// the node's network must not be able to keep its Services from working.
func takeNamespace(ctx context.Context, cfg *config.Config, version string, log *slog.Logger) (*control.Socket, error) {
	who := control.Who{PID: os.Getpid(), Version: version, Mode: cfg.Mode, Node: cfg.NodeName, Since: time.Now()}
	s, err := control.Take(ctx, who)
	var squatted *control.SquattedError
	if errors.As(err, &squatted) || errors.Is(err, control.ErrHeld) {
		log.Error("continuing without the lock that prevents a second agent", "error", err)
		return nil, nil
	}
	return s, err
}

// mayClean refuses to remove the rules of an agent that runs: it would write them
// again at once.
func mayClean(ctx context.Context) error {
	who, err := control.Ask(ctx)
	var squatted *control.SquattedError
	switch {
	case errors.Is(err, control.ErrNoAgent), errors.As(err, &squatted):
		return nil
	case errors.Is(err, control.ErrHeld):
		return fmt.Errorf("check for a running agent: %w (fairlead cleanup --force skips this check)", err)
	case err != nil:
		return err
	}
	return fmt.Errorf("%s manages this network namespace and would write its rules again at once: stop it first, or use fairlead cleanup --force", who)
}
