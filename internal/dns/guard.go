package dns

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// guard keeps a panic in the handling of one query from ending the process: the
// query is lost, the panic is counted, and each kind of panic is logged once.
type guard struct {
	server *Server
	mu     sync.Mutex
	told   map[string]struct{}
}

// maxFaultsTold bounds the number of logged panics, in case each has a different text.
const maxFaultsTold = 16

// catch is to be deferred. It calls lost, unless nil, after a panic.
func (g *guard) catch(lost func()) {
	fault := recover()
	if fault == nil {
		return
	}
	g.server.metrics.panics.Inc()
	text := fmt.Sprint(fault)
	g.mu.Lock()
	_, told := g.told[text]
	if !told && len(g.told) < maxFaultsTold {
		g.told[text] = struct{}{}
	} else {
		told = true
	}
	g.mu.Unlock()
	if !told {
		g.server.cfg.Log.Error("panic while serving a DNS query; the query is lost, the server continues. Please report this bug", "fault", text, "stack", string(debug.Stack()))
	}
	if lost != nil {
		lost()
	}
}
