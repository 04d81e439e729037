package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// kernelTests are the tests that program a real kernel; they run with -kernel only.
const kernelTests = "Kernel|Packets|Netns|Namespace|FirstPacket|RoundTrip"

// baselineLimit bounds the run of the tests without a mutant.
const baselineLimit = 10 * time.Minute

// binary is the test binary that holds all mutants of a package.
type binary struct {
	dir     string // of the package
	scratch string
	file    string
	skip    string // pattern of the tests that do not run
	limit   time.Duration
	removed map[int]bool // mutants that do not build
}

// build builds the tests of a package with its mutants, in a scratch directory. It
// removes the mutants that do not build.
func build(t *target, files []*file, scratch string) (*binary, error) {
	b := &binary{dir: t.dir(), scratch: scratch, file: filepath.Join(scratch, "tests"), removed: map[int]bool{}}
	for range 10 {
		text := map[string]string{filepath.Join(b.dir, "mutant_chosen.go"): "package " + t.pkg.Name + "\n" + helpers}
		for _, f := range files {
			text[f.name] = f.overlay(b.removed)
		}
		list, err := writeOverlay(scratch, text)
		if err != nil {
			return nil, err
		}
		out, err := command(context.Background(), "go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", list, "-o", b.file, "./"+b.dir).CombinedOutput()
		if err == nil {
			return b, nil
		}
		if !b.remove(text, string(out)) {
			return nil, fmt.Errorf("the tests do not build: %w\n%s", err, out)
		}
	}
	return nil, fmt.Errorf("the tests do not build after 10 rounds")
}

var (
	compileError = regexp.MustCompile(`(?m)^(?:\S*/)?([^/\s:]+\.go):(\d+):`)
	mutantCall   = regexp.MustCompile(`\bmutant\w+(?:\[[^(]*\])?\((\d+)`)
)

// remove removes the mutants at the lines of the compiler's errors, and reports whether
// there were any. An error on a line without a mutant belongs to the nearest mutant
// above.
func (b *binary) remove(text map[string]string, output string) (some bool) {
	for _, match := range compileError.FindAllStringSubmatch(output, -1) {
		src, ok := text[filepath.Join(b.dir, match[1])]
		if !ok {
			continue
		}
		lines := strings.Split(src, "\n")
		at, _ := strconv.Atoi(match[2])
		var calls [][]string
		for ; at > 0 && len(calls) == 0; at-- {
			calls = mutantCall.FindAllStringSubmatch(lines[at-1], -1)
		}
		for _, call := range calls {
			id, _ := strconv.Atoi(call[1])
			some = some || !b.removed[id]
			b.removed[id] = true
		}
	}
	return some
}

// baseline runs the tests without a mutant, and sets the time limit of a mutant: it may
// loop for ever.
func (b *binary) baseline() error {
	start := time.Now()
	b.limit = baselineLimit
	if out, err := b.test(0); err != nil {
		return fmt.Errorf("the tests fail without any mutant: %w\n%s", err, out)
	}
	b.limit = 3*time.Since(start) + 10*time.Second
	return nil
}

// test runs the tests with one mutant in their own namespaces: a mutant may change
// addresses, rules or files by mistake, and no process of it outlives the run. With
// -short, tests that repeat one check with many seeds use fewer of them.
func (b *binary) test(id int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.limit)
	defer cancel()
	args := []string{"--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", `ip link set lo up && exec "$@"`, "sh",
		b.file, "-test.failfast", "-test.short"}
	if b.skip != "" {
		args = append(args, "-test.skip", b.skip)
	}
	cmd := command(ctx, "unshare", args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), fmt.Sprint(chosenEnv, "=", id), "TMPDIR="+b.scratch)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return out, fmt.Errorf("time limit of %s exceeded", b.limit.Round(time.Second))
	}
	return out, err
}

// command returns a command with low priority. Its process group ends with its context.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "10", name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// writeOverlay writes files, given by the paths that they replace, and the list of
// replacements for the go command.
func writeOverlay(dir string, files map[string]string) (string, error) {
	replaced := map[string]string{}
	for path, text := range files {
		original, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		replaced[original] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(replaced[original], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	var list bytes.Buffer
	if err := json.NewEncoder(&list).Encode(map[string]map[string]string{"Replace": replaced}); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list.Bytes(), 0o600)
}
