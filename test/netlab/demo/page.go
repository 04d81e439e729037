package demo

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// page writes the demo's text and counts the claims that did not hold.
type page struct {
	w      io.Writer
	colour bool
	failed int
}

func newPage(w io.Writer) *page {
	f, ok := w.(*os.File)
	if ok {
		st, err := f.Stat()
		ok = err == nil && st.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
	}
	return &page{w: w, colour: ok}
}

func (p *page) paint(code, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p *page) title(s string) { fmt.Fprintf(p.w, "\n%s\n", p.paint("1", s)) }

func (p *page) say(format string, args ...any) { fmt.Fprintf(p.w, "   "+format+"\n", args...) }

// claim prints a checked sentence.
func (p *page) claim(ok bool, format string, args ...any) {
	mark := p.paint("32", "✓")
	if !ok {
		p.failed++
		mark = p.paint("31", "✗")
	}
	fmt.Fprintf(p.w, " %s %s\n", mark, fmt.Sprintf(format, args...))
}

// bars prints one line for each backend.
func (p *page) bars(counts map[string]int) {
	names := make([]string, 0, len(counts))
	for n := range counts {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		p.say("  %-7s %s %d", n, p.paint("36", strings.Repeat("█", counts[n])), counts[n])
	}
}

// row prints one line of the table of figures.
func (p *page) row(name string, cells ...string) {
	line := fmt.Sprintf("%-34s", name)
	for _, c := range cells {
		line += fmt.Sprintf("%14s", c)
	}
	p.say("%s", line)
}

// brief formats a duration with its significant digits only.
func brief(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}
