package kit

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// Silence is believed after the limit that is right on an idle machine, and as much longer as this many direct requests take just then: an
// answer may come late on a machine that is busy or emulated, but not later than that.
const lateness = 10

// silent reports whether the answer is that none comes.
func (a answer) silent() bool {
	return slices.Contains([]string{"timeout", "fails", "untaken"}, a.kind)
}

// ask makes one request. An answer may take limit, scaled as every limit is; where none should come, silence is believed sooner.
func (a answer) ask(ctx context.Context, r *run, limit time.Duration, request func(context.Context) netlab.Reply) netlab.Reply {
	if a.silent() {
		return believed(ctx, limit, r.lag, request)
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(limit))
	defer cancel()
	return request(ctx)
}

// believed makes a request that should not be answered, and makes it again if the machine turned out too slow for the time that it was given.
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

// lag is how long a request takes that meets no rule of the subject: between the outside and node-b, past node-a.
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

// directPort is one that every node answers on, whatever the scenario does.
const directPort = 7001
