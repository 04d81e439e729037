package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// target is a package and the tests that should notice what becomes of it.
type target struct {
	name, dir string
	tests     []string // packages; the package's own if none
	kernel    string   // tests that program a real kernel
}

func targets() []target {
	const kernel = "Kernel|Packets|Netns|Namespace|FirstPacket|RoundTrip"
	return []target{
		{name: "policy", dir: "internal/policy"},
		{name: "engine", dir: "internal/engine"},
		{name: "delta", dir: "internal/delta"},
		{name: "nftables", dir: "internal/dataplane/nftables", kernel: kernel},
		{name: "iptables", dir: "internal/dataplane/iptables", kernel: kernel},
		{name: "conntrack", dir: "internal/conntrack", kernel: kernel},
		{name: "convert", dir: "internal/source/convert"},
		{name: "dns", dir: "internal/dns"},
	}
}

func targetNames() (out []string) {
	for _, t := range targets() {
		out = append(out, t.name)
	}
	return out
}

func targetNamed(name string) (target, error) {
	for _, t := range targets() {
		if t.name == name {
			return t, nil
		}
	}
	return target{}, fmt.Errorf("no package %q: want one of %s, or all", name, strings.Join(targetNames(), ", "))
}

// outcome is what the tests said.
type outcome uint8

const (
	killed outcome = iota
	survived
	isEquivalent
	unbuilt
	outcomes
)

func (o outcome) String() string {
	return [...]string{"killed  ", "survived", "changes nothing", "does not build"}[o]
}

// baseline runs the tests on what is there, and gives the time that a mutant may
// take: it may loop for ever.
func (t *target) baseline(kernel bool) (time.Duration, error) {
	start := time.Now()
	if out, err := t.test(context.Background(), "", kernel); err != nil {
		return 0, fmt.Errorf("the tests of %s fail without any mutant: %w\n%s", t.name, err, out)
	}
	return 5*time.Since(start) + 20*time.Second, nil
}

func (t *target) try(m *mutant, limit time.Duration, kernel bool) outcome {
	overlay, remove, err := m.overlay()
	if err != nil {
		fail(err)
	}
	defer remove()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := t.test(ctx, overlay, kernel)
	switch {
	case err == nil:
		return survived
	case bytes.Contains(out, []byte("[build failed]")):
		return unbuilt
	}
	return killed
}

// test runs the target's tests in a process group of its own, so that nothing is
// left of a mutant that hangs.
func (t *target) test(ctx context.Context, overlay string, kernel bool) ([]byte, error) {
	args := []string{"-n", "10", "go", "test", "-count=1", "-failfast", "-vet=off"}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if !kernel && t.kernel != "" {
		args = append(args, "-skip", t.kernel)
	}
	if len(t.tests) == 0 {
		args = append(args, "./"+t.dir)
	}
	cmd := exec.CommandContext(ctx, "nice", append(args, t.tests...)...)
	ownGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return out, ctx.Err()
	}
	return out, err
}

// overlay writes the mutated file, and the JSON by which go test takes it instead.
func (m *mutant) overlay() (file string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	src, err := os.ReadFile(m.file)
	if err != nil {
		return "", remove, err
	}
	changed := append(append(append([]byte(nil), src[:m.from]...), m.text...), src[m.to:]...)
	mutated := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(mutated, changed, 0o600); err != nil {
		return "", remove, err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", remove, err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: mutated}})
	if err != nil {
		return "", remove, err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, remove, os.WriteFile(file, list, 0o600)
}
