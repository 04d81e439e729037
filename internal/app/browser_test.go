package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/browser"
)

// TestPageInABrowser opens the status page of a real agent in Chromium, as people with a keyboard, a screen reader, a small screen or
// a dark room do.
func TestPageInABrowser(t *testing.T) {
	if !browser.Installed() {
		t.Skip("needs Debian's chromium and chromium-driver, which test/browser/install.sh installs")
	}
	p := begin(t, agentArgs(folder(t, webService+brokenService), "--cluster-cidr", "10.244.0.0/16")...)
	p.says("in sync")
	b, err := browser.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, path := range []string{"/status", "/status?q=shop/pay", "/status?q=web"} {
		t.Run(path, func(t *testing.T) {
			if err := b.Open(t.Context(), "http://127.0.0.1:10249"+path); err != nil {
				t.Fatal(err)
			}
			for name, script := range map[string]string{"scripts": noScript, "structure": structure} {
				faultless(t, b, name, script)
			}
			for _, scheme := range []string{"light", "dark"} {
				tell(t, b, "Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]string{"name": "prefers-color-scheme", "value": scheme}}})
				faultless(t, b, "contrast in the "+scheme, contrast)
			}
			for _, width := range []int{360, 1280} {
				tell(t, b, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false})
				faultless(t, b, fmt.Sprintf("width %d", width), scrolls)
			}
			keyboard(t, b)
		})
	}
	byKeyboard(t, b)
	urls, err := b.Asked(t.Context())
	if err != nil || len(urls) == 0 {
		t.Errorf("%d requests are told: %v", len(urls), err)
	}
	for _, u := range urls {
		own := strings.HasPrefix(u, "chrome:") || strings.HasPrefix(u, "data:") // the browser's first, empty page
		if !own && !strings.HasPrefix(u, "http://127.0.0.1:10249/status") && u != "http://127.0.0.1:10249/favicon.ico" {
			t.Errorf("the page asks for %s", u)
		}
	}
}

func tell(t *testing.T, b *browser.Browser, command string, params map[string]any) {
	t.Helper()
	if err := b.Tell(t.Context(), command, params, nil); err != nil {
		t.Fatal(err)
	}
}

// faultless runs a script that gives a list of faults.
func faultless(t *testing.T, b *browser.Browser, what, script string) {
	t.Helper()
	var faults []string
	if err := b.Run(t.Context(), script, &faults); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, f := range faults {
		t.Errorf("%s: %s", what, f)
	}
}

const noScript = `
const faults = [];
if (document.scripts.length) faults.push("there are scripts");
for (const e of document.querySelectorAll("*")) for (const a of e.attributes) if (a.name.startsWith("on")) faults.push(e.outerHTML);
return faults;`

// structure is what a screen reader goes by: language, title, landmarks once each, headings in order, names of what is pictured or typed in.
const structure = `
const faults = [], all = s => [...document.querySelectorAll(s)];
if (document.documentElement.lang !== "en" || !document.title) faults.push("no language or title");
for (const s of ["header", "main", "footer", "h1", "[role=search]", "[role=status]"]) if (all(s).length !== 1) faults.push(all(s).length + " of " + s);
let level = 1;
for (const h of all("h1,h2,h3,h4")) { const n = +h.tagName[1]; if (n > level + 1) faults.push("heading " + h.textContent + " skips a level"); level = n; }
for (const e of all("input")) if (!e.labels.length || !e.labels[0].textContent.trim()) faults.push("an input without a label");
for (const e of all("button, a")) if (!e.textContent.trim()) faults.push("nothing to read in " + e.outerHTML);
for (const e of all("svg")) if (e.getAttribute("role") !== "img" || !e.getAttribute("aria-label")) faults.push("a picture without words");
for (const e of all("section")) { const h = document.getElementById(e.getAttribute("aria-labelledby")); if (!h || !e.contains(h)) faults.push("a section without a name"); }
for (const e of all("table")) if (!e.querySelector("th[scope=col]") || !e.querySelector("th[scope=row]")) faults.push("a table whose cells have no headings");
for (const e of all("[tabindex]")) if (e.tabIndex !== 0) faults.push("an order of its own for the keyboard: " + e.outerHTML);
const ids = all("[id]").map(e => e.id); if (new Set(ids).size !== ids.length) faults.push("an id twice");
return faults;`

// contrast wants 4.5 to 1 between each text and what is behind it (WCAG 2, AA).
const contrast = `
const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
const over = (top, below) => top.slice(0, 3).map((v, i) => v * top[3] + below[i] * (1 - top[3]));
const light = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const behind = e => { if (!e) return [255, 255, 255]; const c = parse(getComputedStyle(e).backgroundColor); return c[3] === 1 ? c.slice(0, 3) : over(c, behind(e.parentElement)); };
const faults = [];
const check = (e, style, what) => { const c = parse(style.color); c[3] *= +style.opacity; const r = ratio(over(c, behind(e)), behind(e)); if (r < 4.5) faults.push(what + " has " + r.toFixed(2) + " to 1"); };
for (const e of document.querySelectorAll("body *")) if ([...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) check(e, getComputedStyle(e), e.tagName + " " + e.textContent.trim().slice(0, 30));
for (const e of document.querySelectorAll("[placeholder]")) check(e, getComputedStyle(e, "::placeholder"), "the placeholder");
return faults;`

const scrolls = `
const faults = [], root = document.documentElement;
if (root.scrollWidth > root.clientWidth) faults.push("it is " + root.scrollWidth + " wide and scrolls");
for (const e of document.querySelectorAll("body *")) { const r = e.getBoundingClientRect(); if (r.right > root.clientWidth + 1 && !e.closest(".wide, svg")) faults.push(e.tagName + " ends at " + r.right); }
return faults;`

// keyboard goes through the page with the tabulator: each thing that can be used, once, from top to bottom, and one can see where one is.
func keyboard(t *testing.T, b *browser.Browser) {
	t.Helper()
	const seen = `const e = document.activeElement, r = e.getBoundingClientRect(), s = getComputedStyle(e);
		return {at: [...document.querySelectorAll("input, button, a, [tabindex]")].indexOf(e), top: r.top + scrollY, left: r.left, outline: s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2, what: e.tagName}`
	var count int
	if err := b.Run(t.Context(), `document.activeElement.blur(); window.getSelection().removeAllRanges(); return document.querySelectorAll("input, button, a, [tabindex]").length`, &count); err != nil {
		t.Fatal(err)
	}
	for n := range count {
		if err := b.Press(t.Context(), browser.Tab); err != nil {
			t.Fatal(err)
		}
		var at struct {
			At        int
			Top, Left float64
			Outline   bool
			What      string
		}
		if err := b.Run(t.Context(), seen, &at); err != nil {
			t.Fatal(err)
		}
		if at.At != n || !at.Outline {
			t.Errorf("after %d tabulators the keyboard is at %s, number %d, outline %t", n+1, at.What, at.At, at.Outline)
			return
		}
	}
}

// byKeyboard asks for a Service without a mouse.
func byKeyboard(t *testing.T, b *browser.Browser) {
	t.Helper()
	if err := b.Open(t.Context(), "http://127.0.0.1:10249/status"); err != nil {
		t.Fatal(err)
	}
	if err := b.Press(t.Context(), browser.Tab+"shop/pay"+browser.Enter); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the explanation", func() error {
		var text string
		err := b.Run(t.Context(), `const e = document.getElementById("why"); return e ? e.parentElement.textContent : location.href`, &text)
		if err == nil && !strings.Contains(text, "the only endpoint is not ready") {
			err = fmt.Errorf("it says %q", text)
		}
		return err
	})
}
