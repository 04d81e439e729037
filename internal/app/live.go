package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

const (
	// maxLive bounds how long one trace may mark packets.
	maxLive = time.Minute
	// liveQuiet is how long after its last event a packet counts as gone.
	liveQuiet = 300 * time.Millisecond
)

// tracing follows real packets, one question at a time.
type tracing struct{ mu sync.Mutex }

// follow adds to a simulated trace the rules that a real packet met. It writes one small table,
// which is removed with the answer, and at the latest with the end of this process.
func (i *inspection) follow(ctx context.Context, ask inspect.Question, wait time.Duration, t *inspect.Trace) error {
	if !i.live.mu.TryLock() {
		return errors.New("another trace of live packets runs: try again")
	}
	defer i.live.mu.Unlock()
	to, err := inspect.ParseSubject(t.To, "")
	if err != nil {
		return err
	}
	if !ask.Subject.ByName() { // in userspace mode the trace shows the Service's own address, and packets go where the agent answers
		to.To = ask.Subject.To
	}
	k, err := nft.Open(nft.Config{})
	if err != nil {
		t.Live = &inspect.Live{Note: "packets cannot be traced here: " + err.Error()}
		return nil
	}
	defer func() { _ = k.Close() }()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	p := packet{mode: i.a.cfg.Mode, enough: cancel}
	defer p.stop()
	spec := nft.TraceSpec{Table: fmt.Sprintf("fairlead-trace-%d", os.Getpid()), From: ask.From, To: to.To, Protocol: uint8(to.Protocol)}
	if err := k.Trace(ctx, spec, func(e nft.TraceEvent) bool { return p.met(&e, spec.Table) }); err != nil {
		t.Live = &inspect.Live{Note: "packets cannot be traced here: " + err.Error()}
		return nil
	}
	l := inspect.LiveOf(p.list, wait.String())
	l.Note = blindness(i.a.cfg.Mode, i.a.place, p.lost)
	t.Live = &l
	return nil
}

// blindness returns what a trace by nftables does not show; lost: the kernel reported more events than were read.
func blindness(mode, place string, lost bool) string {
	var all []string
	switch {
	case mode == userspace.Name:
		all = append(all, "in userspace mode the agent relays connections itself: only rules of other programs are shown here")
	case place == "iptables-legacy":
		all = append(all, "the kernel cannot trace rules of iptables-legacy: only nftables tables are shown here")
	}
	if lost { // another program traces very many packets
		all = append(all, "the kernel reported more packets than the agent could read: this trace may be incomplete, also at its end: try again")
	}
	return strings.Join(all, "; ")
}

// packet collects what the first packet met.
type packet struct {
	mode   string
	id     uint32
	lost   bool // events of the kernel were lost
	list   []inspect.Met
	enough context.CancelFunc
	quiet  *time.Timer
}

func (p *packet) met(e *nft.TraceEvent, own string) (done bool) {
	p.lost = p.lost || e.Lost
	if e.Lost || e.Chain.Table.Name == own || p.id != 0 && e.Packet != p.id {
		return false
	}
	if p.id = e.Packet; p.quiet == nil {
		p.quiet = time.AfterFunc(liveQuiet, p.enough)
	}
	p.quiet.Reset(liveQuiet)
	m := inspect.Met{Table: e.Chain.Table.String(), Chain: e.Chain.Name, Rule: e.Rule, Policy: e.Policy, Does: word(e.Verdict),
		Ours: inspect.OursAmong(p.mode == iptables.Name, e.Chain.Table.Name, e.Chain.Name)}
	if e.Dst.IsValid() {
		m.To = e.Dst.String()
	}
	p.list = append(p.list, m)
	return m.Ends()
}

func (p *packet) stop() {
	if p.quiet != nil {
		p.quiet.Stop()
	}
}

func word(v nft.Verdict) string {
	switch v.Code {
	case nft.CodeDrop:
		return "drop"
	case nft.CodeAccept:
		return "accept"
	case nft.CodeReturn:
		return "return"
	case nft.CodeJump:
		return "jump " + v.Chain
	case nft.CodeGoto:
		return "goto " + v.Chain
	}
	return ""
}
