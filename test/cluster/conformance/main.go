package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/test/scenarios"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	modes := flag.String("mode", "nftables", "modes of kube-proxy, separated by commas")
	only := flag.String("run", "", "only variants whose name (scenario/family/protocol) matches this expression")
	bin := flag.String("bin", ".cache/bin", "folder with etcd, kube-apiserver and kube-proxy")
	labs := flag.Int("labs", 2, "labs at the same time, each with an API server of its own")
	excluded := flag.Bool("excluded", false, "run also what the scenarios exclude for kube-proxy, to see whether it is so")
	page := flag.String("explained", "docs/differences.md", "page that explains the differences, by the names of the scenarios")
	patience := flag.Duration("patience", 30*time.Second, "how long an expectation may take to come true")
	flag.Parse()

	cfg := kit.Config{Modes: strings.Split(*modes, ","), SubjectName: subjectName, Labs: *labs, Patience: *patience, Done: report}
	if *excluded {
		cfg.SubjectName = "anything"
	}
	var err error
	if cfg.Scenarios, err = kit.Load(scenarios.FS); err != nil {
		return err
	}
	if *only != "" {
		if cfg.Run, err = regexp.Compile(*only); err != nil {
			return err
		}
	}
	dir, err := filepath.Abs(*bin)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "kube-proxy")); err != nil {
		return fmt.Errorf("find kube-proxy (test/cluster/build.sh makes it): %w", err)
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // suppresses the deprecation of externalIPs, one warning for each write
	cfg.NewSubject = func() kit.Subject { return &kubeProxy{bin: dir} }
	start := time.Now()
	results, err := kit.Run(ctx, cfg)
	if err != nil {
		return err
	}
	kit.Matrix(os.Stdout, results)
	fmt.Printf("in %s\n", time.Since(start).Round(time.Second))
	return explained(results, *page)
}

// explained returns an error if a scenario that differs is not listed on the page. So the page cannot
// become stale.
func explained(results []kit.Result, page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read what explains the differences: %w", err)
	}
	var missing []string
	for _, r := range results {
		name := r.Variant.Scenario.Name
		if r.Err != nil && !strings.Contains(string(text), "`"+name+"`") && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("kube-proxy differs in ways that %s does not explain: %s", page, strings.Join(missing, ", "))
	}
	return nil
}

// report prints a line as each variant ends.
func report(r kit.Result) {
	word := "pass"
	if r.NotApplicable != "" {
		word = "not applicable"
	} else if r.Err != nil {
		word = "DIFFERS"
	}
	fmt.Printf("%-14s %5.1fs  %s %s\n", word, r.Took.Seconds(), r.Variant.Name(), r.Mode)
}
