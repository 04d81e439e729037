package file

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// large is a file of at least so many bytes, and the number of objects in it.
func large(bytes int) (text []byte, objects int) {
	var b strings.Builder
	for i := 0; b.Len() < bytes; i++ {
		fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d"},"spec":{"clusterIP":"10.%d.%d.%d","ports":[{"port":80}]}}`+"\n",
			i, 64+i>>16, i>>8&255, i&255)
		fmt.Fprintf(&b, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s%d-1","labels":{"kubernetes.io/service-name":"s%d"}},`+
			`"addressType":"IPv4","ports":[{"port":8080}],"endpoints":[`, i, i)
		for j := range 10 {
			fmt.Fprintf(&b, `{"addresses":["10.%d.%d.%d"],"conditions":{"ready":true,"serving":true},"nodeName":"node-%d"},`, j, i>>8&255, i&255, j)
		}
		b.WriteString(`{"addresses":["10.99.0.1"]}]}` + "\n")
		objects += 2
	}
	return []byte(b.String()), objects
}

// cpuTime is what this process has used of the processors, which does not depend on what else runs.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Large files cost what their size says, in work and in memory.
func TestLargeFile(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 60 MB of manifests") // only under -short; make test does not ask for that
	}
	reading := func(megabytes int) (cpu time.Duration, used, kept uint64) {
		text, objects := large(megabytes << 20)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		text = nil
		var before, after, rest runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		now, begin := time.Now(), cpuTime(t)
		f := newFolder(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		f.scan(now, looked, none)
		f.flush(now, func(model.Event) {})
		cpu = cpuTime(t) - begin
		runtime.ReadMemStats(&after)
		runtime.GC()
		runtime.ReadMemStats(&rest)
		if got := len(f.files["a.json"].objects); got != objects {
			t.Errorf("%d MB: %d objects of %d", megabytes, got, objects)
		}
		return cpu, after.TotalAlloc - before.TotalAlloc, rest.HeapAlloc - min(rest.HeapAlloc, before.HeapAlloc)
	}
	smallTime, smallUsed, _ := reading(10)
	largeTime, largeUsed, kept := reading(50)
	t.Logf("10 MB in %s, %d MB allocated; 50 MB in %s, %d MB allocated, %d MB kept", smallTime, smallUsed>>20, largeTime, largeUsed>>20, kept>>20)
	if largeUsed > 7*smallUsed || largeTime > 20*smallTime { // 5 times as much text; 25 would be quadratic
		t.Errorf("10 MB take %s and %d bytes, 50 MB %s and %d", smallTime, smallUsed, largeTime, largeUsed)
	}
	if kept > 160<<20 { // 40 000 Services and 440 000 endpoints
		t.Errorf("of 50 MB of manifests %d MB are kept", kept>>20)
	}
}
