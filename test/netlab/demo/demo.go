package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// limit bounds the duration of the whole demo.
const limit = 2 * time.Minute

// Config configures the demo.
type Config struct {
	Binary   string // the agent
	Examples string // folder of manifests
	Mode     string
	Out      io.Writer
}

// show is one run of the demo.
type show struct {
	*page
	ctx   context.Context
	cfg   Config
	lab   *netlab.Lab
	agent *kit.Fairlead
	files map[string]string
}

var errClaims = errors.New("demo: not every claim held")

// Addresses of examples/web.yaml, dns.yaml and shop.yaml.
var (
	webCluster4 = netip.MustParseAddrPort("10.96.0.10:80")
	webCluster6 = netip.MustParseAddrPort("[fd00:10:96::10]:80")
	webNode4    = netip.MustParseAddrPort("172.18.0.2:30080")
	webNode6    = netip.MustParseAddrPort("[fd00:172:18::2]:30080")
	dnsCluster  = netip.MustParseAddrPort("10.96.0.53:53")
	shopVIP     = netip.MustParseAddrPort("203.0.113.10:80")
)

const picture = `
   client  ──┐
   client2 ──┼── node-a (the agent runs here) ── pod-a1  pod-a2  pod-a3
             └── node-b ──────────────────────── pod-b1  pod-b2  pod-b3`

// Run runs all parts and cleans up. It returns an error if a claim did not hold.
func Run(ctx context.Context, cfg Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	s := &show{page: newPage(cfg.Out), ctx: ctx, cfg: cfg, agent: &kit.Fairlead{Binary: cfg.Binary}}
	if s.files, err = readExamples(cfg.Examples); err != nil {
		return err
	}
	if err := s.run(); err != nil {
		return err
	}
	fmt.Fprintln(s.w)
	if s.failed > 0 {
		s.say("The agent's log:\n%s", s.agent.Log())
		return errClaims
	}
	s.say("%s Everything above was checked with real packets, in %s.", s.paint("1;32", "All good."), brief(time.Since(began)))
	s.say("Next: make test, make conformance, make bench. README.md says how to run it on a cluster.")
	return nil
}

func readExamples(dir string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("read examples in %s: none found: %w", dir, err)
	}
	files := map[string]string{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files[filepath.Base(path)] = string(data)
	}
	return files, nil
}

func (s *show) run() (err error) {
	s.title("Fairlead: Kubernetes Services in a small network of its own")
	fmt.Fprintln(s.w, picture[1:])
	began := time.Now()
	if s.lab, err = netlab.New(s.ctx, netlab.Config{}); err != nil {
		return err
	}
	name := s.lab.Node().NetNS
	defer func() { err = errors.Join(err, s.tidy(name)) }()
	fmt.Fprintln(s.w)
	s.say("Lab ready in %s: 11 network namespaces, IPv4 and IPv6, no way out.", brief(time.Since(began)))
	s.say("Look inside while it runs: ip netns exec %s nft list ruleset", name)

	var setup kit.Setup
	setup.Lab, setup.Mode = s.lab, s.cfg.Mode
	for name, data := range s.files {
		setup.Files = append(setup.Files, kit.File{Name: name, Data: data})
	}
	began = time.Now()
	if err := s.agent.Start(s.ctx, setup); err != nil {
		return err
	}
	s.claim(true, "The agent has read examples/ and written all of it to the kernel, %s after its start.", brief(time.Since(began)))
	s.spread()
	s.others()
	if err := s.shrink(); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.restart()
}

// tidy removes everything and checks that nothing is left.
func (s *show) tidy(netns string) error {
	s.title("Cleaning up")
	err := errors.Join(s.agent.Stop(context.WithoutCancel(s.ctx)), s.lab.Close())
	left, _ := filepath.Glob("/run/netns/" + strings.TrimSuffix(netns, "node-a") + "*")
	s.claim(err == nil && len(left) == 0, "`fairlead cleanup` removed its tables; the namespaces are gone.")
	return err
}
