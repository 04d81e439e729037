package main

import (
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
	kernel    string // tests that program a real kernel
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

// binary builds the tests with all mutants of the target in them.
func (t *target) binary(together map[string]string) (file string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	together[filepath.Join(t.dir, "mutant_chosen.go")] = chooserOf(filepath.Base(t.dir))
	overlay, err := writeOverlay(dir, together)
	if err != nil {
		return "", remove, err
	}
	file = filepath.Join(dir, "tests")
	out, err := command(context.Background(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", file, "./"+t.dir).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("the tests of %s do not build with all mutants in them: %w\n%s", t.name, err, out)
	}
	return file, remove, err
}

// baseline runs the tests on what is there, and gives the time that a mutant may
// take: it may loop for ever.
func (t *target) baseline(binary string, kernel bool) (time.Duration, error) {
	start := time.Now()
	if out, err := t.test(context.Background(), binary, 0, kernel); err != nil {
		return 0, fmt.Errorf("the tests of %s fail without any mutant: %w\n%s", t.name, err, out)
	}
	return 5*time.Since(start) + 20*time.Second, nil
}

func (t *target) try(m *mutant, binary string, limit time.Duration, kernel bool) outcome {
	if m.id == 0 {
		file, remove, err := t.ownBinary(m)
		defer remove()
		if err != nil {
			return unbuilt
		}
		binary = file
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if _, err := t.test(ctx, binary, m.id, kernel); err != nil {
		return killed
	}
	return survived
}

// test runs the target's tests in a process group of its own, so that nothing is
// left of a mutant that hangs. With -short, tests that repeat one thing with many
// seeds take fewer of them.
func (t *target) test(ctx context.Context, binary string, id int, kernel bool) ([]byte, error) {
	args := []string{"-test.failfast", "-test.short"}
	if !kernel && t.kernel != "" {
		args = append(args, "-test.skip", t.kernel)
	}
	cmd := command(ctx, binary, args...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), fmt.Sprint(chosenEnv, "=", id))
	out, err := cmd.CombinedOutput()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return out, ctx.Err()
	}
	return out, err
}

// ownBinary builds the tests with one mutant.
func (t *target) ownBinary(m *mutant) (file string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		fail(err)
	}
	remove = func() { os.RemoveAll(dir) }
	src, err := os.ReadFile(m.file)
	if err != nil {
		fail(err)
	}
	overlay, err := writeOverlay(dir, map[string]string{m.file: string(src[:m.from]) + m.text + string(src[m.to:])})
	if err != nil {
		fail(err)
	}
	file = filepath.Join(dir, "tests")
	return file, remove, command(context.Background(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", file, "./"+t.dir).Run()
}

// command is one at low priority.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "10", name}, args...)...)
	ownGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// writeOverlay writes files, by the paths that they stand for, and the JSON by which
// the go command takes them instead.
func writeOverlay(dir string, files map[string]string) (string, error) {
	replace := map[string]string{}
	for path, text := range files {
		original, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(replace[original], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}
