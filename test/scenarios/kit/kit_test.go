package kit

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// script is a subject without an agent: every file is a ruleset for `nft -f`. It proves that the kit can pass and can fail.
type script struct {
	lab *netlab.Lab
	dir string
	log buffer
}

func (s *script) Name() string { return "script" }

func (s *script) Start(_ context.Context, setup Setup) error {
	s.lab = setup.Lab
	return nil
}

func (s *script) Apply(ctx context.Context, files []File) error {
	for _, f := range files {
		path := filepath.Join(s.dir, f.Name)
		if err := os.WriteFile(path, []byte(f.Data), 0o600); err != nil {
			return err
		}
		out, err := s.lab.Node().Run(ctx, "nft", "-f", path)
		_, _ = s.log.Write([]byte("applied " + f.Name + " " + out + "\n"))
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *script) Delete(context.Context, []string) error { return nil }
func (s *script) Restart(context.Context, bool) error    { return nil }
func (s *script) Halt(context.Context) error             { return nil }
func (s *script) Resume(context.Context) error           { return nil }
func (s *script) Cleanup(ctx context.Context) error      { return SweepNode(ctx, s.lab) }
func (s *script) Stop(ctx context.Context) error         { return SweepNode(ctx, s.lab) }
func (s *script) Log() string                            { return s.log.String() }

const rules = `
-- rules.nft --
table {{if eq family "IPv4"}}ip{{else}}ip6{{end}} hand {
 chain dispatch {
  meta l4proto {{proto}} {{if eq family "IPv4"}}ip{{else}}ip6{{end}} daddr {{vip 10}} th dport 80 dnat {{if eq family "IPv4"}}ip{{else}}ip6{{end}} to numgen random mod 2 map { 0 : {{ip "pod-a1"}} . 8080, 1 : {{ip "pod-b1"}} . 8080 }
 }
 chain pre { type nat hook prerouting priority dstnat; jump dispatch; }
 chain out { type nat hook output priority -100; jump dispatch; }
 chain post { type nat hook postrouting priority srcnat; ct status dnat {{if eq family "IPv4"}}ip{{else}}ip6{{end}} saddr { {{ip "client"}}, {{ip "node-a"}} } masquerade; }
 chain refuse { type filter hook forward priority 0; {{if eq family "IPv4"}}ip{{else}}ip6{{end}} daddr {{vip 11}} reject; }
}
`

const head = "families: ipv4 ipv6\nprotocols: tcp udp sctp\napply rules.nft\n"

// runText runs a scenario. Its expectations are retried for as long as patience: on a busy machine a true one may need long, and a false one always
// takes that long.
func runText(t *testing.T, lab *netlab.Lab, patience time.Duration, text string) []error {
	t.Helper()
	s, err := Parse("test", []byte(text+rules))
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	for _, v := range s.Variants() {
		r := &run{v: v, lab: lab, subject: &script{dir: t.TempDir()}, mode: "nftables", patience: patience, flows: map[string]*flow{}, traffic: map[string]*traffic{}}
		errs = append(errs, r.do(t.Context()))
	}
	return errs
}

func newLab(t *testing.T) *netlab.Lab {
	t.Helper()
	lab, err := netlab.New(t.Context(), netlab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lab.Close() })
	return lab
}

func TestTrueExpectationsPass(t *testing.T) {
	t.Parallel()
	text := head + `
  from client node-a to {{vip 10}}:80: backends pod-a1 pod-b1 source masqueraded
  from pod-a2 pod-a3 to {{vip 10}}:80: backends pod-a1:8080 pod-b1:8080
  from pod-a2 to {{vip 10}}:80: backends pod-a1 pod-b1 source preserved
  from pod-a2 to {{vip 10}}:80: changes backend within 50 tries, 1ms apart
  from pod-a2 to {{vip 10}}:80: shares pod-a1=50 pod-b1=50 of 400
  from client to {{vip 11}}:80: refused
  from client to {{vip 11}}:80: fails
  from client to {{vip 12}}:80: timeout
  from client to {{ip "pod-a3"}}:9090: same backend 5 times source preserved
  log contains "applied" "rules.nft"
  log lacks "panic"
  prints node-a "nft list tables": contains "hand"
run node-a nft flush ruleset
  from client to {{vip 10}}:80: timeout
  prints node-a "nft list tables": lacks "hand"
`
	for i, err := range runText(t, newLab(t), time.Minute, text) {
		if err != nil {
			t.Errorf("variant %d: %v", i, err)
		}
	}
}

func TestFalseExpectationsFail(t *testing.T) {
	t.Parallel()
	lab := newLab(t)
	for line, want := range map[string]string{
		`from client to {{vip 10}}:80: backends pod-a1`:                                  "pod-b1:8080 answered, want only pod-a1",
		`from client to {{vip 10}}:80: backends pod-a1 pod-b1 pod-b2`:                    "no answer from pod-b2",
		`from client to {{vip 10}}:80: backends pod-a1:9090 pod-b1`:                      "pod-a1:8080 answered",
		`from client to {{vip 10}}:80: backends pod-a1 pod-b1 source preserved`:          "want the client's own",
		`from pod-a2 to {{vip 10}}:80: backends pod-a1 pod-b1 source masqueraded`:        "want an address of node-a",
		`from client to {{vip 10}}:80: refused`:                                          "want refused",
		`from client to {{vip 10}}:80: timeout`:                                          "want timeout",
		`from client to {{vip 11}}:80: timeout`:                                          "refused",
		`from client to {{vip 12}}:80: refused`:                                          "timeout",
		`from client to {{vip 12}}:80: backends pod-a1`:                                  "timeout",
		`from client to {{vip 10}}:80: same backend 40 times`:                            "before",
		`from client to {{ip "pod-a1"}}:8080: changes backend within 5 tries, 1ms apart`: "the same backend",
		`http client http://172.18.0.2:10256/healthz: 200`:                               "refused",
		`metric fairlead_operations_total = 0`:                                           "refused",
		`log contains "nothing of the kind"`:                                             "no line holds",
		`log lacks "applied"`:                                                            "there is a line",
		`prints node-a "nft list tables": contains "other"`:                              "no line holds",
		`from client to {{vip 10}}:80: shares pod-a1=75 pod-b1=25 of 200`:                "of 800 requests, want 75",
		`traffic t: lost 0 of 5`:                                                         "no traffic",
		`flow f: backend pod-a1`:                                                         "no flow",
		`from mars to {{vip 10}}:80: refused`:                                            "find host",
	} {
		text := strings.NewReplacer("tcp udp sctp", "tcp", "ipv4 ipv6", "ipv6").Replace(head) + "  " + line + "\n"
		for _, err := range runText(t, lab, 100*time.Millisecond, text) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s\n  got %v\n  want an error with %q", line, err, want)
			}
		}
	}
}

func TestFlowsKeepTheirConnection(t *testing.T) {
	t.Parallel()
	text := "protocols: tcp udp sctp\napply rules.nft\nopen f from pod-a2 to {{vip 10}}:80\n  flow f: backend pod-a1 pod-b1 source preserved\n" +
		"run node-a nft flush chain {{if eq family \"IPv4\"}}ip{{else}}ip6{{end}} hand dispatch\n  flow f: same backend\nclose f\n" +
		"apply rules.nft\nsend t from client to {{vip 10}}:80\n traffic t: lost 0 of 30\nclose t\n"
	for i, err := range runText(t, newLab(t), time.Minute, text) {
		if err != nil {
			t.Errorf("variant %d: %v", i, err)
		}
	}
}

func TestBadScenariosAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"families: ipv5\napply a\n":                                    "unknown word",
		"protocols:\napply a\n":                                        "empty list",
		"from client to {{vip 1}}:80: refused\n":                       "before the first step",
		"apply a\n from client to {{vip 1}}: refused\n":                "",
		"apply a\n from client to {{vip 1}}:80: maybe\n":               "cannot read line",
		"apply a\n from client to {{vip 1}}:80: same backend 3 time\n": "cannot read line",
		"apply a\n bogus\n":                                            "cannot read line",
		"apply a\n {{nothing}}\n":                                      "not defined",
		"# only words\n":                                               "no step",
		"not nftables:\napply a\n":                                     "needs a value",
	} {
		if _, err := Parse("bad", []byte(text+"-- a --\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parse %q: %v, want an error with %q", text, err, want)
		}
	}
}

func TestSumSamples(t *testing.T) {
	body := "# HELP x y\nfl_x_total{kind=\"a b\"} 2\nfl_x_total{kind=\"c\"} 3\nfl_x_total_other 9\nplain 1.5e+01\n"
	for name, want := range map[string]float64{"fl_x_total": 5, "plain": 15} {
		if got, err := sumSamples(body, name); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
	if _, err := sumSamples(body, "absent"); err == nil {
		t.Error("absent metric: no error")
	}
}
