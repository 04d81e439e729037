package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroup counts CPU and memory of a program and of all children that it ever had. It supports version 1 (cpuacct and
// memory) and version 2, whichever is mounted.
type cgroup struct {
	cpu, memory string // folders; the same folder in version 2
	v1          bool
}

// cpuTime is in seconds. It does not include kernel threads that free memory later.
type cpuTime struct{ Total, User, Sys float64 }

func newCgroup(name string) (*cgroup, error) {
	name = fmt.Sprintf("flpeers-%d-%s", os.Getpid(), name)
	g := &cgroup{cpu: filepath.Join(cgroupRoot, name)}
	g.memory = g.cpu
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cpuacct")); err == nil {
		g.v1, g.cpu, g.memory = true, filepath.Join(cgroupRoot, "cpuacct", name), filepath.Join(cgroupRoot, "memory", name)
	}
	for _, d := range g.folders() {
		if err := os.Mkdir(d, 0o755); err != nil && !os.IsExist(err) {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
	return g, nil
}

func (g *cgroup) folders() []string {
	if g.v1 {
		return []string{g.cpu, g.memory}
	}
	return []string{g.cpu}
}

// wrap returns a command line prefix that puts the program into the group before its first instruction.
func (g *cgroup) wrap() []string {
	var enter strings.Builder
	for _, d := range g.folders() {
		fmt.Fprintf(&enter, "echo $$ > %s/cgroup.procs && ", d)
	}
	return []string{"sh", "-c", enter.String() + `exec "$@"`, "sh"}
}

func (g *cgroup) used() (c cpuTime) {
	if g.v1 {
		return cpuTime{number(g.cpu+"/cpuacct.usage") / 1e9, number(g.cpu+"/cpuacct.usage_user") / 1e9, number(g.cpu+"/cpuacct.usage_sys") / 1e9}
	}
	b, err := os.ReadFile(g.cpu + "/cpu.stat")
	if err != nil {
		return c
	}
	to := map[string]*float64{"usage_usec": &c.Total, "user_usec": &c.User, "system_usec": &c.Sys}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if p := to[key]; p != nil {
			micros, _ := strconv.ParseFloat(value, 64)
			*p = micros / 1e6
		}
	}
	return c
}

func (c cpuTime) since(start cpuTime) cpuTime {
	return cpuTime{c.Total - start.Total, c.User - start.User, c.Sys - start.Sys}
}

// memoryPeakMiB returns the peak of the memory in MiB. It counts each page once, and includes what the kernel
// charges for rules.
func (g *cgroup) memoryPeakMiB() float64 {
	if g.v1 {
		return number(g.memory+"/memory.max_usage_in_bytes") / (1 << 20)
	}
	return number(g.memory+"/memory.peak") / (1 << 20)
}

// resetPeak starts a new peak. Version 2 supports that only since kernel 6.12; on older kernels the peak is that of
// all phases.
func (g *cgroup) resetPeak() {
	file := "/memory.peak"
	if g.v1 {
		file = "/memory.max_usage_in_bytes"
	}
	_ = os.WriteFile(g.memory+file, []byte("0"), 0o644)
}

// remove waits until the last member has exited, for 5 s at most; sweep removes leftovers in a later run.
func (g *cgroup) remove() {
	for _, d := range g.folders() {
		for range 100 {
			if err := os.Remove(d); err == nil || os.IsNotExist(err) {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func number(file string) float64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	f, _ := strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
	return f
}

// machineBusy returns the CPU time of the whole machine in seconds, without idle, iowait and stolen time.
func machineBusy() (seconds float64) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0
	}
	defer f.Close()
	line, _ := bufio.NewReader(f).ReadString('\n')
	for i, field := range strings.Fields(line)[1:] {
		if i == 3 || i == 4 || i > 6 {
			continue
		}
		ticks, _ := strconv.ParseFloat(field, 64)
		seconds += ticks / 100
	}
	return seconds
}
