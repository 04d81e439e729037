package app

import (
	"log/slog"
	"os"

	"github.com/fairlead/fairlead/internal/config"
)

// logger writes to standard error: warnings and the few lines of start and stop
// at -v=0, what each turn did at -v=2, every decision at -v=4.
type logger struct {
	*slog.Logger
	level *slog.LevelVar
}

func newLogger(cfg config.Logging) logger {
	l := logger{level: new(slog.LevelVar)}
	l.setVerbosity(cfg.Verbosity)
	opts := &slog.HandlerOptions{Level: l.level}
	if cfg.Format == "json" {
		l.Logger = slog.New(slog.NewJSONHandler(os.Stderr, opts))
	} else {
		l.Logger = slog.New(slog.NewTextHandler(os.Stderr, opts))
	}
	return l
}

// setVerbosity turns klog's -v into a level: each step lets one more of slog's
// units through below Info.
func (l logger) setVerbosity(v int) { l.level.Set(slog.LevelInfo - slog.Level(v)) }

// levelTurn is the level of one line a turn: shown from -v=2.
const levelTurn = slog.LevelInfo - 2
