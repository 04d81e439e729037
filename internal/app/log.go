package app

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/internal/config"
)

// logger writes to standard error: warnings and the few lines of start and stop
// at -v=0, the result of each sync at -v=2, every decision at -v=4.
type logger struct {
	*slog.Logger
	level *slog.LevelVar
}

func newLogger(cfg config.Logging) logger { return newLoggerTo(os.Stderr, cfg) }

func newLoggerTo(w io.Writer, cfg config.Logging) logger {
	l := logger{level: new(slog.LevelVar)}
	l.setVerbosity(cfg.Verbosity)
	opts := &slog.HandlerOptions{Level: l.level}
	if cfg.Format == "json" {
		l.Logger = slog.New(slog.NewJSONHandler(printable{w}, opts))
	} else {
		l.Logger = slog.New(slog.NewTextHandler(w, opts))
	}
	return l
}

// printable escapes what encoding/json does not escape and a terminal obeys: DEL, C1 control characters and marks of direction. The text
// handler quotes all of them. Outside of strings JSON holds none.
type printable struct{ w io.Writer }

func (p printable) Write(line []byte) (int, error) {
	obeyed := func(r rune) bool { return r != '\n' && r <= 0xffff && !unicode.IsPrint(r) }
	if bytes.ContainsFunc(line, obeyed) {
		var out []byte
		for _, r := range string(line) {
			if obeyed(r) {
				out = fmt.Appendf(out, "\\u%04x", r)
			} else {
				out = utf8.AppendRune(out, r)
			}
		}
		if _, err := p.w.Write(out); err != nil {
			return 0, err
		}
		return len(line), nil
	}
	return p.w.Write(line)
}

// setVerbosity turns klog's -v into a level: each step lets one more of slog's
// units through below Info.
func (l logger) setVerbosity(v int) { l.level.Set(slog.LevelInfo - slog.Level(v)) }

// levelTurn is the level of the one line for each sync: shown from -v=2.
const levelTurn = slog.LevelInfo - 2
