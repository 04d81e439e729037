package userspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/handover"
	"github.com/fairlead/fairlead/internal/relay"
)

// The kinds of handover.Item, in the order in which they are sent.
const (
	itemSocket  = "socket"  // Key: place of the socket
	itemFlow    = "flow"    // Key: place of the socket; Value: relay.Flow
	itemClients = "clients" // Key: model.FrontendKey; Value: at most clientsAtOnce values of relay.Client
)

// clientsAtOnce is the maximum number of remembered clients in one Item.
const clientsAtOnce = 200

// errHandingOver causes the engine to retry; by then the handover has been completed or abandoned.
var errHandingOver = errors.New("the sockets are being handed over")

var _ handover.Giver = (*Driver)(nil)

// Pause implements handover.Giver.
func (d *Driver) Pause() {
	d.mu.Lock()
	d.giving = true
	open := d.listeners()
	d.mu.Unlock()
	for _, l := range open {
		l.Pause()
	}
}

// listeners returns the open listeners.
func (d *Driver) listeners() (out []*relay.Listener) {
	for _, s := range d.sockets {
		if s.open != nil {
			out = append(out, s.open)
		}
	}
	return out
}

// Resume implements handover.Giver.
func (d *Driver) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.giving = false
	for _, l := range d.listeners() {
		l.Resume()
	}
}

// Release implements handover.Giver: the successor keeps the sockets, and this process keeps its
// connections.
func (d *Driver) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.listeners() {
		_ = l.Close()
	}
}

// Estate implements handover.Giver.
func (d *Driver) Estate(emit func(handover.Item) error) error {
	for _, s := range d.sockets { // they do not change: calls of the engine return errHandingOver
		if s.open == nil {
			continue
		}
		f, err := s.open.Socket()
		if err != nil {
			return err
		}
		if err := emit(handover.Item{Kind: itemSocket, Key: s.place(), File: f}); err != nil {
			return err
		}
		if err := emitFlows(s, emit); err != nil {
			return err
		}
	}
	for id, t := range d.targets {
		for list := range slices.Chunk(t.Remembered(), clientsAtOnce) {
			if err := emit(handover.Item{Kind: itemClients, Key: id, Value: encode(list)}); err != nil {
				return err
			}
		}
	}
	return nil
}

func emitFlows(s *socket, emit func(handover.Item) error) (err error) {
	for _, f := range s.open.Flows() {
		if err != nil {
			_ = f.Socket.Close()
			continue
		}
		err = emit(handover.Item{Kind: itemFlow, Key: s.place(), Value: encode(f), File: f.Socket})
	}
	return err
}

// Hold prevents the Driver from opening sockets before Begin, because another process still listens.
func (d *Driver) Hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits = true
}

// legacy is the state received from the process before this one: sockets by place, clients by Frontend.
type legacy struct {
	sockets map[string]relay.Heritage
	clients map[string][]relay.Client
}

// Inherit decodes the state of the process before this one. Begin uses the files of items; the
// caller owns them and closes them after that.
func (d *Driver) Inherit(items []handover.Item) error {
	l := legacy{sockets: map[string]relay.Heritage{}, clients: map[string][]relay.Client{}}
	for i := range items {
		if err := l.take(&items[i]); err != nil {
			return fmt.Errorf("read %s %s: %w", items[i].Kind, items[i].Key, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.legacy = l
	return nil
}

// Begin opens the sockets that Hold has kept closed, with the inherited state.
func (d *Driver) Begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits = false
	for id, t := range d.targets {
		t.Recall(d.legacy.clients[id])
	}
	for _, s := range d.sockets {
		if err := d.listenAgain(s, d.legacy.sockets[s.place()]); err != nil {
			d.p.Log.Warn("cannot listen for a Service; trying again", "service", s.target.service, "error", err)
		}
	}
	d.legacy = legacy{}
}

func (l *legacy) take(it *handover.Item) error {
	h := l.sockets[it.Key]
	switch it.Kind {
	case itemSocket:
		h.Socket = it.File
	case itemFlow:
		var f relay.Flow
		if err := json.Unmarshal([]byte(it.Value), &f); err != nil {
			return err
		}
		f.Socket = it.File
		h.Flows = append(h.Flows, f)
	case itemClients:
		var list []relay.Client
		if err := json.Unmarshal([]byte(it.Value), &list); err != nil {
			return err
		}
		l.clients[it.Key] = append(l.clients[it.Key], list...)
		return nil
	default: // an item of a later version
		return nil
	}
	l.sockets[it.Key] = h
	return nil
}
