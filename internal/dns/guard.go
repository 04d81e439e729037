package dns

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// guard keeps a fault in the treatment of one query from ending the process: the
// query is lost, the fault is counted, and each kind of fault is logged once.
type guard struct {
	server *Server
	mu     sync.Mutex
	told   map[string]struct{}
}

// maxFaultsTold bounds the log if every fault has a text of its own.
const maxFaultsTold = 16

// catch is to be deferred. It calls lost, if given, after a panic.
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
		g.server.cfg.Log.Error("a DNS query made the server fail; the query is lost, the server goes on. Please report this", "fault", text, "stack", string(debug.Stack()))
	}
	if lost != nil {
		lost()
	}
}
