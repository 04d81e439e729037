package app

import (
	"bytes"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/inspect/page"
)

// maxFound is how many Services a search on the page names.
const maxFound = 50

// pages returns the handlers of the pages for people on the metrics address.
func (i *inspection) pages() map[string]http.Handler {
	status := page.New()
	text := func(w http.ResponseWriter, write func(*bytes.Buffer)) {
		var b bytes.Buffer
		write(&b)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(b.Bytes())
	}
	return map[string]http.Handler{
		"GET /status": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { i.page(status, w, r) }),
		"GET /statusz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			text(w, func(b *bytes.Buffer) {
				page.Statusz(b, page.Process{Version: i.version, Go: runtime.Version(), Started: i.since, Now: time.Now()})
			})
		}),
		"GET /flagz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			text(w, func(b *bytes.Buffer) { page.Flagz(b, i.a.cfg.Given()) })
		}),
	}
}

// page answers /status?q=WHAT: the status, and with a query what it finds.
func (i *inspection) page(p *page.Page, w http.ResponseWriter, r *http.Request) {
	c := page.Content{Status: i.status(r.Context()), Query: strings.TrimSpace(r.URL.Query().Get("q"))}
	if c.Query != "" {
		subject, bad := inspect.ParseSubject(c.Query, "")
		if !i.inspect(w, r, func(v engine.View) { c.Found, c.More = search(v, c.Query) }) {
			return
		}
		if bad == nil {
			if c.Explanation, bad = i.explanation(r.Context(), i.question(c.Query, subject)); bad != nil {
				busy(w)
				return
			}
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	if err := p.Write(w, c); err != nil {
		i.a.log.Warn("cannot write the status page", "error", err)
	}
}

// search returns the first Services, by name, whose name has the text in it, and how many
// more there are.
func search(v engine.View, text string) (found []string, more int) {
	all := 0
	for k := range v.State().Keys() {
		if !strings.Contains(k.Name, text) && !strings.Contains(k.String(), text) {
			continue
		}
		all++
		name := k.String()
		if at, _ := slices.BinarySearch(found, name); at < maxFound {
			found = slices.Insert(found, at, name)
			found = found[:min(len(found), maxFound)]
		}
	}
	return found, all - len(found)
}
