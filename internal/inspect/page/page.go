package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/inspect"
)

//go:embed page.html
var source string

//go:embed style.css
var style string

// Page renders the status page.
type Page struct{ t *template.Template }

// New parses the template.
func New() *Page { return &Page{template.Must(template.New("status").Parse(source))} }

// Content is the data of one rendered page.
type Content struct {
	Status      *inspect.Status
	Query       string
	Found       []string // the first Services whose name contains the query
	More        int      // number of matches that are not in Found
	Explanation *inspect.Explanation
}

// Write writes one page. If rendering fails, it writes nothing.
func (p *Page) Write(w io.Writer, c Content) error {
	var text, explained strings.Builder
	c.Status.Text(&text)
	if c.Explanation != nil {
		c.Explanation.Text(&explained)
	}
	var drawn []graph
	if c.Status.History != nil {
		drawn = graphs(c.Status.History.Minutes)
	}
	var out bytes.Buffer
	err := p.t.Execute(&out, struct {
		Content
		Style           template.CSS
		Unwell          []string
		Text, Explained string
		Graphs          []graph
		GraphHeight     int
	}{c, template.CSS(style), c.Status.Unwell(), text.String(), explained.String(), drawn, graphHeight})
	if err != nil {
		return fmt.Errorf("render the status page: %w", err)
	}
	_, err = io.WriteString(w, inspect.VisibleLines(out.String())) // the page is also read in terminals
	return err
}

const warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n\n"

// Process is the input of Statusz.
type Process struct {
	Version, Go  string
	Started, Now time.Time
}

// Statusz writes the /statusz answer of Kubernetes' components (KEP-4827).
func Statusz(w io.Writer, p Process) {
	up := p.Now.Sub(p.Started).Truncate(time.Second)
	fmt.Fprintf(w, "\nkube-proxy statusz\n%sStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: fairlead %s\n\nPaths: /configz /flagz /healthz /metrics /proxyMode /status /statusz\n",
		warning, p.Started.UTC().Format(time.RFC1123), up/time.Hour, up%time.Hour/time.Minute, up%time.Minute/time.Second, p.Go, p.Version)
}

// Flagz writes the flags with their values (KEP-4828).
func Flagz(w io.Writer, flags []string) {
	fmt.Fprintf(w, "\nkube-proxy flagz\n%s", warning)
	for _, f := range slices.Sorted(slices.Values(flags)) {
		fmt.Fprintln(w, f)
	}
}
