package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"syscall"
	"time"
)

// driverAddress is where chromedriver listens: each test has a network namespace of its own.
const driverAddress = "127.0.0.1:9515"

// startLimit bounds the start of chromedriver and of the browser.
const startLimit = 2 * time.Minute

// Browser is a running Chromium.
type Browser struct {
	driver  *exec.Cmd
	session string
}

// Installed reports whether there is a browser to be driven.
func Installed() bool {
	_, noDriver := exec.LookPath("chromedriver")
	_, noBrowser := exec.LookPath("chromium")
	return noDriver == nil && noBrowser == nil
}

// Start starts one, with a profile in a folder of the caller's. It asks nobody but the pages that it is sent to.
func Start(ctx context.Context, profile string) (*Browser, error) {
	b := &Browser{driver: exec.Command("chromedriver", "--port=9515")}
	b.driver.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.driver.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := b.begin(ctx, profile)
	if err != nil {
		_ = b.driver.Process.Kill()
		_ = b.driver.Wait()
		return nil, fmt.Errorf("start chromium: %w", err)
	}
	return b, nil
}

func (b *Browser) begin(ctx context.Context, profile string) error {
	for {
		err := b.ask(ctx, http.MethodGet, "/status", nil, nil)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	var made struct{ SessionID string }
	err := b.ask(ctx, http.MethodPost, "/session", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"browserName": "chrome", "goog:loggingPrefs": map[string]string{"performance": "ALL"},
		"goog:chromeOptions": map[string]any{"args": []string{
			"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
			"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir=" + profile}},
	}}}, &made)
	b.session = "/session/" + made.SessionID
	return err
}

// Close ends it.
func (b *Browser) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	err := b.ask(ctx, http.MethodDelete, b.session, nil, nil)
	_ = b.driver.Process.Kill()
	_ = b.driver.Wait()
	return err
}

// ask sends a command and reads its value.
func (b *Browser) ask(ctx context.Context, method, path string, body, value any) error {
	var text []byte
	if method == http.MethodPost {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+driverAddress+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(err, fmt.Errorf("%s %s: %s: %.500s", method, path, resp.Status, text))
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(text, &struct {
		Value any `json:"value"`
	}{value})
}

// Open goes to a page and waits until it is there.
func (b *Browser) Open(ctx context.Context, url string) error {
	return b.ask(ctx, http.MethodPost, b.session+"/url", map[string]string{"url": url}, nil)
}

// Run runs a function body of JavaScript beside the page, and reads what it returns.
func (b *Browser) Run(ctx context.Context, script string, value any) error {
	return b.ask(ctx, http.MethodPost, b.session+"/execute/sync", map[string]any{"script": script, "args": []any{}}, value)
}

// Press types keys, as the keyboard does.
func (b *Browser) Press(ctx context.Context, keys string) error {
	var list []map[string]string
	for _, k := range keys {
		list = append(list, map[string]string{"type": "keyDown", "value": string(k)}, map[string]string{"type": "keyUp", "value": string(k)})
	}
	return b.ask(ctx, http.MethodPost, b.session+"/actions", map[string]any{"actions": []any{map[string]any{"type": "key", "id": "keys", "actions": list}}}, nil)
}

// The keys without a letter (W3C WebDriver, "Keyboard actions").
const (
	Tab   = "\uE004"
	Enter = "\uE007"
)

// Tell sends a command of Chromium's own protocol.
func (b *Browser) Tell(ctx context.Context, command string, params map[string]any, value any) error {
	return b.ask(ctx, http.MethodPost, b.session+"/goog/cdp/execute", map[string]any{"cmd": command, "params": params}, value)
}

// Asked returns the addresses of all requests since it was asked last.
func (b *Browser) Asked(ctx context.Context) (urls []string, err error) {
	var rows []struct{ Message string }
	if err := b.ask(ctx, http.MethodPost, b.session+"/se/log", map[string]string{"type": "performance"}, &rows); err != nil {
		return nil, err
	}
	for _, r := range rows {
		var m struct {
			Message struct {
				Method string
				Params struct{ Request struct{ URL string } }
			}
		}
		if err := json.Unmarshal([]byte(r.Message), &m); err == nil && m.Message.Method == "Network.requestWillBeSent" {
			urls = append(urls, m.Message.Params.Request.URL)
		}
	}
	return urls, nil
}
