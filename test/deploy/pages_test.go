package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// kubectl replaces the real one: it runs on the node the commands that are meant for a pod. For the other commands of the pages it
// only checks whether the files exist.
const kubectl = `#!/bin/sh
set -eu
case "$*" in
"-n kube-system exec ds/fairlead -- /fairlead "*) shift 6; exec fairlead "$@" ;;
"apply -k "*) test -f "$3/kustomization.yaml" ;;
"-n kube-system rollout status daemonset/fairlead") ;;
"-n kube-system delete daemonset kube-proxy") ;;
*) echo "no page has this command: kubectl $*" >&2; exit 1 ;;
esac
`

// helmProgram replaces Helm, as kubectl replaces kubectl: the chart itself is rendered by the tests of chart_test.go.
const helmProgram = `#!/bin/sh
set -eu
case "$*" in
"install fairlead deploy/helm/fairlead -n kube-system -f "*) test -f "$3/Chart.yaml" && test -f "$7" ;;
*) echo "no page has this command: helm $*" >&2; exit 1 ;;
esac
`

// block is one fenced block of a page.
type block struct {
	page, text string
	stopped    bool // it is for a node on which no agent runs
}

var fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

// blocks returns the blocks of docs/operate, in order.
func blocks(t *testing.T) (all []block) {
	t.Helper()
	pages, err := filepath.Glob("../../docs/operate/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "sh" && m[1] != "sh stopped" {
				t.Errorf("%s: a block of %q, which this test cannot run", page, m[1])
			}
			all = append(all, block{page: filepath.Base(page), text: m[2], stopped: m[1] == "sh stopped"})
		}
		if strings.Count(string(text), "```")%2 != 0 {
			t.Errorf("%s: a block does not end", page)
		}
	}
	if len(all) < 20 {
		t.Fatalf("%d blocks in %d pages", len(all), len(pages))
	}
	return all
}

// TestPages runs every block of docs/operate on a node of the lab.
func TestPages(t *testing.T) {
	m := newMachine(t)
	for name, text := range map[string]string{"kubectl": kubectl, "helm": helmProgram} {
		if err := os.WriteFile(filepath.Join(m.bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.startAgent(t)
	for i, b := range blocks(t) {
		t.Run(fmt.Sprintf("%s/%d", b.page, i), func(t *testing.T) {
			host := "node-a"
			if b.stopped {
				host = "node-b"
			}
			out, err := m.script(t.Context(), host, b.text)
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, b.text, out)
			}
			t.Logf("%s\n%s", b.text, out)
		})
	}
}

// script runs a block as a user would type it, in the repository.
func (m *machine) script(ctx context.Context, host, text string) (string, error) {
	h, err := m.lab.Host(host)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, limit())
	defer cancel()
	path, err := exec.LookPath("bash")
	if err != nil {
		return "", err
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	return h.Run(ctx, path, "-c", fmt.Sprintf("set -euo pipefail; cd '%s'; PATH='%s':$PATH\n%s", root, m.bin, text))
}
