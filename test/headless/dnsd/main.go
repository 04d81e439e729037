// Command dnsd is the agent's DNS part alone: Kubernetes source, store, server. The
// experiment and the load test run it because they do not need a whole agent, which
// programs the kernel.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	_ "net/http/pprof" //nolint:gosec // a test program
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead/fairlead/internal/dns"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/source/k8s"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dnsd:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	master := flag.String("master", "", "URL of the API server")
	addr := flag.String("address", "127.0.0.1:53", "where to listen")
	web := flag.String("web", "", "where to serve metrics and profiles")
	park := flag.Duration("park", dns.DefaultPark, "default parking; 0 = off")
	flag.Parse()
	listen, err := netip.ParseAddrPort(*addr)
	if err != nil {
		return err
	}
	src, err := k8s.New(k8s.Config{Master: *master, ContentType: "application/json", NodeName: "node", Headless: true, UserAgent: "dnsd", Log: slog.Default()})
	if err != nil {
		return err
	}
	metrics := dns.NewMetrics()
	store := dns.NewStore(dns.StoreConfig{Sources: []string{k8s.Name}, Metrics: metrics})
	if *park == 0 {
		*park = -1
	}
	everybody := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	srv, err := dns.New(dns.Config{Addrs: []netip.AddrPort{listen}, Store: store, Metrics: metrics, Park: *park, Allow: everybody})
	if err != nil {
		return err
	}
	if *web != "" {
		registry := prometheus.NewRegistry()
		registry.MustRegister(metrics)
		http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		go func() {
			s := &http.Server{Addr: *web, ReadHeaderTimeout: time.Second}
			slog.Error("web", "error", s.ListenAndServe())
		}()
	}
	box := mailbox.New()
	go store.Follow(ctx, box)
	go func() { _ = src.Run(ctx, func(ev model.Event) { box.Put(ev) }) }()
	return srv.Run(ctx)
}
