package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are the options that run.sh passes.
type options struct {
	sizes      []int
	endpoints  int
	subjects   []string
	churn      time.Duration
	connect    time.Duration
	singles    int
	syncLimit  time.Duration
	briefAbove int
	bin        string // folder with etcd, kube-apiserver and kube-proxy
	fairlead   string
	flags      []string // additional flags of Fairlead, for example another mode
	out        string
}

func main() {
	opt, err := parse()
	if err == nil {
		// The first signal ends the run in an orderly way: the defers remove subjects, namespaces and cgroups.
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		err = run(ctx, opt)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func parse() (options, error) {
	o := options{}
	sizes := flag.String("sizes", "1000 10000", "numbers of Services")
	subjects := flag.String("subjects", "nftables fairlead", "of: nftables iptables-nft iptables-legacy fairlead")
	flag.IntVar(&o.endpoints, "e", 10, "endpoints of each Service")
	flag.DurationVar(&o.churn, "churn", time.Minute, "how long 10 changes a second; 0: not at all")
	flag.DurationVar(&o.connect, "connect", 3*time.Second, "how long to connect to each target; 0: not at all")
	flag.IntVar(&o.singles, "singles", 5, "single changes on a quiet proxy")
	flag.DurationVar(&o.syncLimit, "sync-limit", 10*time.Minute, "when to give a start up")
	flag.IntVar(&o.briefAbove, "brief-above", 20000, "more Services than this: cold start, two changes and connects only")
	flag.StringVar(&o.bin, "bin", "", "folder with etcd, kube-apiserver and kube-proxy")
	flag.StringVar(&o.fairlead, "fairlead", "", "the Fairlead binary")
	flags := flag.String("fairlead-flags", "", "more flags for Fairlead, such as --proxy-mode=iptables")
	flag.StringVar(&o.out, "out", "results.jsonl", "file for the records")
	flag.Parse()
	for _, f := range strings.Fields(*sizes) {
		var n int
		if _, err := fmt.Sscan(f, &n); err != nil || n < 1 || n > maxServices {
			return o, fmt.Errorf("size %q: want 1 to %d", f, maxServices)
		}
		if len(o.sizes) > 0 && n <= o.sizes[len(o.sizes)-1] {
			return o, fmt.Errorf("size %q: sizes must grow, because Services are added to what is there", f)
		}
		o.sizes = append(o.sizes, n)
	}
	if o.endpoints < 1 || o.endpoints > maxEndpoints/o.sizes[len(o.sizes)-1] {
		return o, fmt.Errorf("%d endpoints of each Service: the lab has addresses for %d in all", o.endpoints, maxEndpoints)
	}
	o.subjects, o.flags = strings.Fields(*subjects), strings.Fields(*flags)
	for _, s := range o.subjects {
		if _, err := o.command(s); err != nil {
			return o, err
		}
	}
	return o, nil
}

// run measures, and prints the tables of the existing records, also when it was interrupted.
func run(ctx context.Context, o options) error {
	sink, err := newSink(o.out)
	if err != nil {
		return err
	}
	defer sink.close()
	err = measureAll(ctx, o, sink)
	return errors.Join(err, sink.report(os.Stdout, o))
}

// measureAll runs every subject at every size.
func measureAll(ctx context.Context, o options, sink *sink) error {
	c, err := newControl(ctx, o)
	if err != nil {
		return err
	}
	defer c.close()
	have := 0
	for _, n := range o.sizes {
		if err := c.load(ctx, have, n); err != nil {
			return err
		}
		have = n
		for _, s := range o.subjects {
			if err := measure(ctx, c, sink, s, n); err != nil {
				return fmt.Errorf("measure %s at %d Services: %w", s, n, err)
			}
		}
	}
	return nil
}
