package kit

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// lateness is the factor for the longest delay of an answer. The absence of an answer is accepted after the limit for an idle machine plus this many
// times the duration of a direct request at that moment. On a busy or emulated machine an answer may come late, but not later than that.
const lateness = 10

// silent reports whether no answer is the expected result.
func (a answer) silent() bool {
	return slices.Contains([]string{"timeout", "fails", "untaken"}, a.kind)
}

// ask sends one request. An answer may take limit, scaled with package patience. Where none is expected, the limit depends on the speed of the machine.
func (a answer) ask(ctx context.Context, r *run, limit time.Duration, request func(context.Context) netlab.Reply) netlab.Reply {
	if a.silent() {
		return believed(ctx, limit, r.lag, request)
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(limit))
	defer cancel()
	return request(ctx)
}

// believed sends a request for which no answer is expected. It repeats the request if the machine turns out to have been too slow for the time limit.
func believed(ctx context.Context, limit time.Duration, lag func(context.Context) time.Duration, request func(context.Context) netlab.Reply) netlab.Reply {
	seen := lag(ctx)
	for {
		given := limit + 2*lateness*seen
		once, cancel := context.WithTimeout(ctx, given)
		rep := request(once)
		cancel()
		if rep.Outcome != netlab.TimedOut || ctx.Err() != nil {
			return rep
		}
		if seen = lag(ctx); limit+lateness*seen <= given {
			return rep
		}
	}
}

// lag returns the duration of a request that passes no rule of the subject: from the outside network to node-b, without node-a.
func (r *run) lag(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(requestTimeout))
	defer cancel()
	start := time.Now()
	if b, err := r.lab.Host("node-b"); err == nil {
		rep := r.lab.Client().Ask(ctx, netlab.TCP, netip.AddrPortFrom(b.Addrs.V4, directPort))
		if rep.Outcome == netlab.Answered {
			return time.Since(start)
		}
	}
	return patience.Of(requestTimeout) / lateness
}

// directPort is a port on which every node answers in every scenario.
const directPort = 7001
