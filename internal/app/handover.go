package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/handover"
)

// errHandedOver ends the agent's tasks: the successor owns its sockets.
var errHandedOver = errors.New("handed over to the successor")

// shelfLimit is how long inherited sockets of DNS, health and metrics are kept for servers
// that reopen them; with other flags than before, no server does.
const shelfLimit = 10 * time.Second

const (
	// becoming is the pause between a successor's attempts to become the agent, once it has the sockets.
	becoming = 100 * time.Millisecond
	// askLimit bounds the retries while the predecessor cannot be asked yet.
	askLimit = 20 * time.Second
)

// estate is the state that is handed over: the driver's, and the sockets of the other servers.
type estate struct {
	*userspace.Driver
	shelf *handover.Shelf
}

// Estate implements handover.Giver.
func (e estate) Estate(emit func(handover.Item) error) error {
	if err := e.Driver.Estate(emit); err != nil {
		return err
	}
	return e.shelf.Estate(emit)
}

// queueUp serialises the processes that want to take over: none may check for a running agent
// between the end of one and the beginning of the next. The function that it returns reports
// that this process has become the agent.
func queueUp(ctx context.Context, cfg *config.Config, log logger) (become func()) {
	if !cfg.Userspace.Takeover || cfg.Mode != userspace.Name {
		return func() {}
	}
	leave, err := handover.Queue(ctx, askLimit)
	if err != nil {
		log.Warn("another process has not finished its takeover in time; taking over concurrently", "error", err)
	}
	return leave
}

// heirOf reports whether this process is the successor of a running agent.
func heirOf(ctx context.Context, cfg *config.Config) (bool, error) {
	if !cfg.Userspace.Takeover || cfg.Mode != userspace.Name {
		return false, nil
	}
	who, err := control.Ask(ctx)
	var squatted *control.SquattedError
	switch {
	case errors.Is(err, control.ErrNoAgent), errors.Is(err, control.ErrHeld), errors.As(err, &squatted):
		return false, nil // a normal start: takeNamespace handles it
	case err != nil:
		return false, err
	case who.Mode != userspace.Name:
		return false, fmt.Errorf("take over: %w, in mode %s, which does not support a handover", &control.TakenError{Who: who}, who.Mode)
	}
	return true, nil
}

// becomeHeir makes the agent a successor: it opens no socket before it takes over.
func (a *agent) becomeHeir(become func()) {
	a.rootless.heir, a.rootless.become = true, become
	a.rootless.driver.Hold()
}

// addHandover adds the task that takes over, if the agent is a successor, and then hands
// the state over to the next process that requests it.
func (a *agent) addHandover() {
	r := a.rootless
	a.add("handover", func(ctx context.Context) error {
		if r.heir {
			if err := a.inherit(ctx); err != nil {
				return err
			}
		}
		close(r.begun)
		if r.heir {
			a.control(ctx)
			r.become()
		}
		r.given = handover.Give(ctx, handover.Params{Giver: estate{r.driver, &a.shelf}, Log: a.log.Logger})
		if r.given == nil {
			return nil
		}
		a.log.Info("handed over", "to", r.given.To, "connections", r.relay.Counts().Connections)
		return errHandedOver
	})
}

// mayListen waits until the predecessor has freed its addresses; it returns false if ctx
// ends before.
func (a *agent) mayListen(ctx context.Context) bool {
	if a.rootless == nil {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-a.rootless.begun:
		return true
	}
}

// inherit waits until this process is ready, and takes over.
func (a *agent) inherit(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.follow.inKernel:
	}
	d := a.rootless.driver
	t, err := askPatiently(ctx, func(items []handover.Item) error { return errors.Join(d.Inherit(items), a.shelf.Inherit(items)) })
	if errors.Is(err, handover.ErrNobody) { // the predecessor has ended since
		a.log.Info("the previous agent has exited before the handover; starting without its sockets")
		d.Begin()
		return nil
	}
	if err != nil {
		return err
	}
	d.Begin()
	t.Close()
	time.AfterFunc(shelfLimit, a.shelf.Drop)
	if err := t.Wait(); err != nil {
		a.log.Warn("the previous agent has not released its addresses yet", "pid", t.From, "error", err)
	}
	a.log.Info("took over", "from", t.From, "sockets", d.Sockets(), "clients", a.rootless.relay.Counts().Flows)
	return nil
}

// askPatiently asks again while the agent cannot be asked: it has just taken over itself, or
// is killed. ErrNobody means that for a second there was no agent at all.
func askPatiently(ctx context.Context, usable func([]handover.Item) error) (*handover.Taken, error) {
	begin, nobody := time.Now(), 0
	for {
		t, err := handover.Ask(ctx, 0, usable)
		gone := errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) // it ended while it was asked
		if err == nil || !gone && !errors.Is(err, handover.ErrNobody) || time.Since(begin) > askLimit {
			return t, err
		}
		if _, who := control.Ask(ctx); errors.Is(who, control.ErrNoAgent) {
			nobody++
		} else {
			nobody = 0
		}
		if nobody == 10 {
			return nil, handover.ErrNobody
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(becoming):
		}
	}
}

// control makes a successor the agent of its network namespace, as soon as its predecessor
// has ended.
func (a *agent) control(ctx context.Context) {
	for told := false; ; {
		socket, err := takeNamespace(ctx, a.cfg, a.inspection.version, a.log.Logger)
		if err == nil {
			if socket != nil {
				a.inspection.serve(socket)
				a.migration.serve(socket)
				context.AfterFunc(ctx, func() { _ = socket.Close() })
			}
			return
		}
		if !told {
			told = true
			a.log.Warn("cannot take the lock on this network namespace yet; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(becoming):
		}
	}
}

// drain relays the open connections of an agent that has handed over until they end.
func (a *agent) drain(ctx context.Context) {
	r := a.rootless
	r.given.Close() // the sockets at the successor's addresses are closed
	left := r.relay.Drain(ctx, a.cfg.Userspace.DrainGrace)
	if left > 0 {
		a.log.Warn("stopped; closed the connections that were still open after the drain period", "connections", left, "grace", a.cfg.Userspace.DrainGrace)
		return
	}
	a.log.Info("stopped; all connections have ended")
}
