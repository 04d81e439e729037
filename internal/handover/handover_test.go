package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/test/patience"
)

// TestMain: the socket's name belongs to a network namespace.
func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

func limit() time.Duration { return patience.Of(30 * time.Second) }

// giver has files with a text each. It writes down what it is told.
type giver struct {
	texts []string
	slow  chan struct{} // Estate takes a token from it
	told  chan string   // more room than is ever needed
}

func (g *giver) Pause()   { g.told <- "pause" }
func (g *giver) Resume()  { g.told <- "resume" }
func (g *giver) Release() { g.told <- "release" }

func (g *giver) Estate(emit func(Item) error) error {
	if g.slow != nil {
		<-g.slow
	}
	for i, text := range g.texts {
		it := Item{Kind: "file", Key: fmt.Sprint(i), Value: text}
		if i%2 == 0 { // every second one has a file, so that they may be confused
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			_, _ = w.WriteString(text)
			_ = w.Close()
			it.File = r
		}
		if err := emit(it); err != nil {
			return err
		}
	}
	return nil
}

func (g *giver) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-g.told:
		if got != want {
			t.Fatalf("the giver is told to %s, want %s", got, want)
		}
	case <-time.After(limit()):
		t.Fatalf("the giver is never told to %s", want)
	}
}

// giving runs Give, and gives its result when it has ended.
func giving(t *testing.T, g *giver, step time.Duration) chan *Given {
	t.Helper()
	g.told = make(chan string, 100)
	ctx, stop := context.WithCancel(t.Context())
	out := make(chan *Given, 1)
	var ended sync.WaitGroup
	ended.Go(func() { out <- Give(ctx, Params{Giver: g, Limit: step, Log: slog.New(slog.DiscardHandler)}) })
	t.Cleanup(func() { stop(); ended.Wait() })
	for end := time.Now().Add(limit()); ; time.Sleep(time.Millisecond) { // until it listens
		c, err := net.Dial("unixpacket", Name)
		if err == nil {
			_ = c.Close() // the first one that asks goes away at once
			g.expect(t, "pause")
			g.expect(t, "resume")
			return out
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func all([]Item) error { return nil }

func TestEverythingPasses(t *testing.T) {
	g := &giver{}
	for i := range 301 {
		g.texts = append(g.texts, fmt.Sprint("text ", i, strings.Repeat(".", 500)))
	}
	given := giving(t, g, limit())
	taken, err := Ask(t.Context(), limit(), all)
	if err != nil {
		t.Fatal(err)
	}
	g.expect(t, "pause")
	g.expect(t, "release")
	if len(taken.Items) != len(g.texts) {
		t.Fatalf("%d items pass, want %d", len(taken.Items), len(g.texts))
	}
	for i, it := range taken.Items {
		if it.Value != g.texts[i] || (it.File != nil) != (i%2 == 0) {
			t.Fatalf("item %d is %+v", i, it)
		}
		if it.File == nil {
			continue
		}
		if text, err := io.ReadAll(it.File); err != nil || string(text) != g.texts[i] {
			t.Fatalf("item %d comes with the file of %q, %v", i, text, err)
		}
	}
	taken.Close()
	got := <-given
	if got == nil || got.To != os.Getpid() || taken.From != os.Getpid() {
		t.Errorf("%+v gives, %+v takes", got, taken)
	}
	go func() { got.Close() }()
	if err := taken.Wait(); err != nil {
		t.Error(err)
	}
}

// Whatever goes wrong on the other side, the giver goes on, and the next one gets all.
func TestGiverGoesOn(t *testing.T) {
	g := &giver{texts: make([]string, 200)}
	given := giving(t, g, limit())
	if _, err := Ask(t.Context(), limit(), func([]Item) error { return errors.New("of no use") }); err == nil {
		t.Error("what is of no use was taken")
	}
	g.expect(t, "pause")
	g.expect(t, "resume")
	c := knock(t)
	if list, err := c.receive(); err != nil || len(list) != batchItems {
		t.Fatalf("%d items, %v", len(list), err)
	} else {
		closeFiles(list)
	}
	g.expect(t, "pause")
	_ = c.c.Close() // in the middle
	g.expect(t, "resume")
	taken, err := Ask(t.Context(), limit(), all)
	if err != nil {
		t.Fatal(err)
	}
	taken.Close()
	g.expect(t, "pause")
	g.expect(t, "release")
	(<-given).Close()
}

func knock(t *testing.T) wire {
	t.Helper()
	c, err := net.Dial("unixpacket", Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return wire{c: c.(*net.UnixConn), limit: limit()}
}

// Who is silent for too long has taken nothing, and learns it: the last word that comes
// late is refused.
func TestLastWordTooLate(t *testing.T) {
	g := &giver{}
	giving(t, g, 300*time.Millisecond)
	c := knock(t)
	if list, err := c.receive(); err != nil || list != nil {
		t.Fatalf("%v, %v", list, err)
	}
	g.expect(t, "pause")
	g.expect(t, "resume")
	for end := time.Now().Add(limit()); ; {
		err := c.say(wordMine)
		if errors.Is(err, unix.EPIPE) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the last word, said too late: %v", err)
		}
	}
}

// A giver that answers too late has given nothing: who asked has gone.
func TestLateAnswer(t *testing.T) {
	g := &giver{texts: make([]string, 3), slow: make(chan struct{}, 2)}
	g.slow <- struct{}{} // for the first caller, of giving
	given := giving(t, g, limit())
	if _, err := Ask(t.Context(), 200*time.Millisecond, all); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("an answer that does not come: %v", err)
	}
	g.expect(t, "pause")
	g.slow <- struct{}{}
	g.expect(t, "resume")
	g.slow <- struct{}{}
	taken, err := Ask(t.Context(), limit(), all)
	if err != nil {
		t.Fatal(err)
	}
	taken.Close()
	g.expect(t, "pause")
	g.expect(t, "release")
	(<-given).Close()
}

func TestNobody(t *testing.T) {
	if _, err := Ask(t.Context(), limit(), all); !errors.Is(err, ErrNobody) {
		t.Errorf("nobody is there: %v", err)
	}
}
