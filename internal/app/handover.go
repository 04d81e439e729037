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

// errHandedOver ends the agent's tasks: another process goes on with its sockets.
var errHandedOver = errors.New("handed over to the next agent")

// shelfLimit is how long sockets of DNS, health and metrics that were handed over wait
// for who asks for them; with other flags than before, nobody does.
const shelfLimit = 10 * time.Second

const (
	// becoming is how often an heir tries to be the agent, once it has the sockets.
	becoming = 100 * time.Millisecond
	// askLimit is how long it asks whom it can not ask yet.
	askLimit = 20 * time.Second
)

// estate is all that passes: what the driver has, and the sockets of the other servers.
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

// queueUp has those who want to take over come one after the other: who looks whether there
// is an agent must not look between the end of one and the beginning of the next. What it
// gives says that this process has become the agent.
func queueUp(ctx context.Context, cfg *config.Config, log logger) (become func()) {
	if !cfg.Userspace.Takeover || cfg.Mode != userspace.Name {
		return func() {}
	}
	leave, err := handover.Queue(ctx, askLimit)
	if err != nil {
		log.Warn("another process has been about to take over for long; going on beside it", "error", err)
	}
	return leave
}

// heirOf reports whether this process is to go on in the place of an agent that runs.
func heirOf(ctx context.Context, cfg *config.Config) (bool, error) {
	if !cfg.Userspace.Takeover || cfg.Mode != userspace.Name {
		return false, nil
	}
	who, err := control.Ask(ctx)
	var squatted *control.SquattedError
	switch {
	case errors.Is(err, control.ErrNoAgent), errors.Is(err, control.ErrHeld), errors.As(err, &squatted):
		return false, nil // a start like any other: takeNamespace has more to say of it
	case err != nil:
		return false, err
	case who.Mode != userspace.Name:
		return false, fmt.Errorf("cannot take over: %w, in mode %s, which hands nothing over", &control.TakenError{Who: who}, who.Mode)
	}
	return true, nil
}

// becomeHeir has the agent open no socket before it takes over.
func (a *agent) becomeHeir(become func()) {
	a.rootless.heir, a.rootless.become = true, become
	a.rootless.driver.Hold()
}

// addHandover takes over, if the agent is an heir, and then gives what it has to the
// next process that asks.
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

// mayListen waits until the agent before this one is out of the way; false: ctx has
// ended before.
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
	if errors.Is(err, handover.ErrNobody) { // it has ended meanwhile
		a.log.Info("there is nobody left to take over from")
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
		a.log.Warn("the agent before this one has not freed its addresses yet", "pid", t.From, "error", err)
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

// control makes an heir the agent of its network namespace, as soon as the one before
// it is gone.
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
			a.log.Warn("not yet the agent of this network namespace; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(becoming):
		}
	}
}

// drain carries the connections of an agent that has handed over to their end.
func (a *agent) drain(ctx context.Context) {
	r := a.rootless
	r.given.Close() // whatever was in the next one's way is closed
	left := r.relay.Drain(ctx, a.cfg.Userspace.DrainGrace)
	if left > 0 {
		a.log.Warn("stopped; connections were ended that had not", "connections", left, "grace", a.cfg.Userspace.DrainGrace)
		return
	}
	a.log.Info("stopped; the last connection has ended")
}
