package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/fairlead/fairlead/internal/choose"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
)

// errNotChosen reports that --proxy-mode auto found no mode.
var errNotChosen = errors.New("--proxy-mode auto")

// launch is the state of a start next to its settings: how to read them, and whether this
// process was an agent in another mode before.
type launch struct {
	ctx     context.Context
	flags   *config.Flags
	version string
	told    *modeChange     // nil: the mode was not changed
	asked   string          // the mode of the settings
	made    choose.Choice   // the choice of --proxy-mode auto; zero without auto
	done    <-chan struct{} // closed once the rules of the agent are verified; nil: there was none
}

// load returns the settings for a mode as the package choose names it; "" is the mode
// that this process was started with, or that of the settings.
func (l *launch) load(mode string) (*config.Config, error) {
	pick := func(asked, backend string) (string, error) {
		l.asked = asked
		if asked == iptables.Name && backend != "" {
			l.asked += "-" + backend
		}
		if mode != "" {
			return mode, nil
		}
		return l.choose(asked, backend)
	}
	cfg, err := l.flags.Load(config.Params{Modes: modesAndAuto(), Hostname: os.Hostname, Choose: pick})
	switch {
	case err != nil:
		return nil, err
	case mode != "" || l.told != nil: // the mode is not that of the settings any more, and the status reports the change
		cfg.ModeBy = ""
	case l.made.Mode != "":
		cfg.ModeBy = auto
	}
	return cfg, nil
}

func (l *launch) choose(asked, backend string) (string, error) {
	if l.told != nil {
		return l.told.mode(), nil
	}
	if asked != auto {
		return asked, nil
	}
	made, err := choice(l.ctx, &trial{cfg: plainConfig()}, backend)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotChosen, err)
	}
	l.made = made
	return made.Mode, nil
}

// tell logs how the mode was chosen, if the settings do not determine it.
func (l *launch) tell(log *slog.Logger) {
	switch c := l.told; {
	case c == nil && l.made.Mode != "":
		log.Info("mode chosen by --proxy-mode auto", "mode", l.made.Mode, "because", strings.Join(l.made.Because, "; "))
	case c != nil:
		keepName()
		if c.Failed != "" {
			log.Error("cannot change the mode; continuing in the old mode", "from", c.From, "to", c.To, "error", c.Failed)
		} else {
			log.Info("mode changed by fairlead migrate", "from", c.From, "to", c.To)
		}
	}
}

// next returns the change of mode to make after serve has ended with err; nil: none. If the
// new mode failed, the process goes back to the old one; the end of ctx is no failure.
func (l *launch) next(ctx context.Context, err error) *modeChange {
	var c *modeChange
	switch {
	case errors.As(err, &c):
		return c
	case err == nil || ctx.Err() != nil || !l.told.underWay() || l.verified():
		return nil
	}
	return l.told.back(err)
}

func (l *launch) verified() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}
