// Command experiment measures, in network namespaces of its own, how long a broker and
// its workers take to find each other when their names are published late (sweep), and
// how fast the DNS servers answer (load). It writes JSON lines; plot.py generates the
// tables and pictures of docs/experiments/headless from them.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/headless/kubeapi"
	"github.com/fairlead/fairlead/test/netlab"
	"github.com/miekg/dns"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "experiment:", err)
		stop()
		os.Exit(1)
	}
}

type rig struct {
	lab    *netlab.Lab
	node   *netlab.Host
	api    *kubeapi.API
	apiURL string
	dir    string // scratch folder
	bin    string // folder of dnsd, load, coredns
	out    *os.File
	procs  []*netlab.Process
}

func run(ctx context.Context) error {
	what := flag.String("what", "load", "load or sweep")
	bin := flag.String("bin", "bin", "folder with the programs coredns, dnsd, load and zmqjob.py")
	out := flag.String("out", "", "file to append JSON lines to")
	names := flag.Int("names", 50000, "load: number of names")
	rounds := flag.Int("rounds", 5, "load: turns; sweep: runs of each cell")
	quick := flag.Bool("quick", false, "sweep: fewer cells")
	flag.Parse()
	r, err := newRig(ctx, *bin, *out)
	if err != nil {
		return err
	}
	defer r.close()
	if *what == "load" {
		return r.load(ctx, *names, *rounds)
	}
	return r.sweep(ctx, *rounds, *quick)
}

func newRig(ctx context.Context, bin, out string) (*rig, error) {
	r := &rig{api: kubeapi.New()}
	var err error
	if r.bin, err = filepath.Abs(bin); err != nil {
		return nil, err
	}
	if r.out, err = os.OpenFile(out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, fmt.Errorf("open -out: %w", err)
	}
	if r.dir, err = os.MkdirTemp("", "fairlead-experiment-"); err != nil {
		return nil, err
	}
	if r.lab, err = netlab.New(ctx, netlab.Config{PodsPerNode: 4}); err != nil {
		return nil, err
	}
	r.node = r.lab.Node()
	addr := netip.AddrPortFrom(r.node.Addrs.V4, 8001)
	l, err := r.node.Listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	go func() { _ = (&http.Server{Handler: r.api, ReadHeaderTimeout: time.Minute}).Serve(l) }()
	r.apiURL = "http://" + addr.String()
	return r, nil
}

func (r *rig) close() {
	r.stopServers()
	_ = r.lab.Close()
	_ = os.RemoveAll(r.dir)
	_ = r.out.Close()
}

func (r *rig) stopServers() {
	for _, p := range r.procs {
		p.Kill()
	}
	r.procs = nil
}

// server is one DNS server under test.
type server struct {
	name     string
	corefile string        // CoreDNS with this text, or
	park     time.Duration // Fairlead
}

// servers returns the servers of the measurements. "cached" is what kubeadm wrote until
// 2025 and existing clusters have; "uncached" is what it writes since k/k #128359.
func servers() map[string]server {
	return map[string]server{
		"fairlead":         {name: "fairlead", park: time.Second},
		"fairlead-nopark":  {name: "fairlead-nopark"},
		"coredns":          {name: "coredns", corefile: corefile("30", "cache 30")},
		"coredns-uncached": {name: "coredns-uncached", corefile: corefile("30", "cache 30 {\n  disable success cluster.local\n  disable denial cluster.local\n }")},
	}
}

func corefile(ttl, cache string) string {
	return ".:PORT {\n bind ADDR\n errors\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n  endpoint API\n  ttl " + ttl +
		"\n  fallthrough in-addr.arpa ip6.arpa\n }\n " + cache + "\n loadbalance\n}\n"
}

// start runs a server in the node's namespace, on the given CPU if it is not "".
func (r *rig) start(ctx context.Context, s server, addr netip.AddrPort, cpu string) error {
	var args []string
	if cpu != "" {
		args = []string{"taskset", "-c", cpu}
	}
	if s.corefile != "" {
		text := strings.NewReplacer("PORT", fmt.Sprint(addr.Port()), "ADDR", addr.Addr().String(), "API", r.apiURL).Replace(s.corefile)
		path := filepath.Join(r.dir, s.name+".Corefile")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		args = append(args, filepath.Join(r.bin, "coredns"), "-conf", path)
	} else {
		args = append(args, filepath.Join(r.bin, "dnsd"), "-master", r.apiURL, "-address", addr.String(), "-park", s.park.String())
	}
	cmd := exec.Command(args[0], args[1:]...)
	log, err := os.Create(filepath.Join(r.dir, s.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	p, err := r.node.Start(cmd)
	if err != nil {
		return err
	}
	r.procs = append(r.procs, p)
	return r.answers(ctx, s, addr, p)
}

// probe is a Service that always exists: the server is ready when it resolves the name.
const probe = "probe.load.svc.cluster.local."

func (r *rig) answers(ctx context.Context, s server, addr netip.AddrPort, p *netlab.Process) error {
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.Done():
			log, _ := os.ReadFile(filepath.Join(r.dir, s.name+".log"))
			return fmt.Errorf("%s ended: %v\n%s", s.name, p.Err(), log)
		case <-time.After(100 * time.Millisecond):
		}
		conn, err := r.node.Dial(ctx, "udp", addr.String())
		if err != nil {
			return err
		}
		m := new(dns.Msg)
		m.SetQuestion(probe, dns.TypeA)
		c := dns.Client{Timeout: time.Second}
		a, _, err := c.ExchangeWithConn(m, &dns.Conn{Conn: conn})
		_ = conn.Close()
		if err == nil && len(a.Answer) > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s does not answer", s.name)
}
