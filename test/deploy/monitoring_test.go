package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// promPort is a port on which nothing else in a lab's node listens.
const promPort = 19090

// ruleFile is the part of a rule file that the tests read.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func rules(t *testing.T) ruleFile {
	t.Helper()
	var f ruleFile
	readYAML(t, deployDir+"/monitoring/rules.yaml", &f)
	if len(f.Groups) != 1 || len(f.Groups[0].Rules) != 6 {
		t.Fatalf("rules: %+v", f)
	}
	return f
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestRules: Prometheus accepts the alerts, and each fires when it should.
func TestRules(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		cmd := exec.Command(cached(t, "promtool"), args...)
		cmd.Dir = deployDir + "/monitoring"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
	var tested struct {
		Tests []struct {
			Alerts []struct {
				Name     string `json:"alertname"`
				Expected []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	readYAML(t, deployDir+"/monitoring/rules_test.yaml", &tested)
	fires := map[string]bool{}
	for _, a := range tested.Tests[0].Alerts {
		fires[a.Name] = fires[a.Name] || len(a.Expected) > 0
	}
	for _, r := range rules(t).Groups[0].Rules {
		if !fires[r.Alert] {
			t.Errorf("no test has %s fire", r.Alert)
		}
	}
}

// TestOperatorsRules: the PrometheusRule holds the same alerts.
func TestOperatorsRules(t *testing.T) {
	var plain map[string]any
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	readYAML(t, deployDir+"/monitoring/rules.yaml", &plain)
	readYAML(t, deployDir+"/kustomize/monitoring/prometheusrule.yaml", &object)
	if !reflect.DeepEqual(plain, object.Spec) {
		t.Error("deploy/kustomize/monitoring/prometheusrule.yaml is not deploy/monitoring/rules.yaml")
	}
}

// TestRunbooks: every alert points to a section that exists.
func TestRunbooks(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules(t).Groups[0].Rules {
		link := r.Annotations["runbook_url"]
		if !strings.HasSuffix(link, "/docs/operate/alerts.md#"+strings.ToLower(r.Alert)) || !strings.Contains(string(page), "\n## "+r.Alert+"\n") {
			t.Errorf("%s leads to %q, and the page has no such section", r.Alert, link)
		}
	}
}

// queries returns the queries of the board and of the alerts, without the comparison of an alert.
func queries(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(deployDir + "/monitoring/board.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			all = append(all, strings.ReplaceAll(q.Expr, "$__rate_interval", "1m"))
		}
	}
	if len(all) < 12 {
		t.Fatalf("the board has %d queries", len(all))
	}
	comparison := regexp.MustCompile(` (==|>) [0-9.]+$`)
	for _, r := range rules(t).Groups[0].Rules {
		all = append(all, comparison.ReplaceAllString(strings.ReplaceAll(r.Expr, ` unless on (instance) fairlead_syncs_total{result="ok"} > 0`, ""), ""))
	}
	return all
}

// notHere are metrics that an agent with a folder of manifests and without --service-metrics has no row of, or that are not the agent's: those of
// node_exporter, and those of watches of an API server. TestNames checks the names of the latter, and promtool's test has values for them.
func notHere() []string {
	return []string{"node_nf_conntrack", "fairlead_service_", "fairlead_watch_staleness_seconds", "min by (instance, resource) (fairlead_watch_connected)"}
}

// TestNames: the board and the alerts query metrics that the agent has.
func TestNames(t *testing.T) {
	var table []byte
	for _, name := range []string{"table", "service"} {
		text, err := os.ReadFile("../../internal/metrics/" + name + ".go")
		if err != nil {
			t.Fatal(err)
		}
		table = append(table, text...)
	}
	seen := 0
	for _, q := range queries(t) {
		for _, name := range regexp.MustCompile(`fairlead_[a-z_]+`).FindAllString(q, -1) {
			seen++
			if !strings.Contains(string(table), `"`+strings.TrimSuffix(name, "_bucket")+`"`) {
				t.Errorf("%s asks for %s, which is not served", q, name)
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d names", seen)
	}
}

// TestBoardOnRealMetrics: Prometheus scrapes a real agent, and every query of the board and the alerts returns a result.
func TestBoardOnRealMetrics(t *testing.T) {
	m := newMachine(t)
	m.startAgent(t)
	config := filepath.Join(t.TempDir(), "prometheus.yaml")
	text := "global: {scrape_interval: 1s}\nscrape_configs:\n- {job_name: fairlead, static_configs: [{targets: ['127.0.0.1:10249']}]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m.start(t, cached(t, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+t.TempDir(), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", promPort))
	m.ready(t, promPort, "/-/ready")
	for _, q := range queries(t) {
		if slices.ContainsFunc(notHere(), func(name string) bool { return strings.Contains(q, name) }) {
			continue
		}
		eventually(t, q, func(ctx context.Context) error { return m.finds(ctx, q) })
	}
	if err := m.finds(t.Context(), `max by (instance) (fairlead_build_info) unless on (instance) fairlead_syncs_total{result="ok"} > 0`); err == nil {
		t.Error("FairleadNotSynced fires for an agent that has synced")
	}
}

// finds returns an error unless Prometheus has a result for the query.
func (m *machine) finds(ctx context.Context, query string) error {
	a, err := m.get(ctx, promPort, "/api/v1/query?query="+url.QueryEscape(query))
	if err != nil {
		return err
	}
	defer a.Body.Close()
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			Result []any `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(a.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" || len(answer.Data.Result) == 0 {
		return fmt.Errorf("%d rows %s", len(answer.Data.Result), answer.Error)
	}
	return nil
}
