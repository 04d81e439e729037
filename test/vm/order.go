package vm

import (
	"hash/fnv"
	"os/exec"
	"time"
)

// Order is what the guest's PID 1 is told to do; it finds it as /order.json.
type Order struct {
	Args []string
	Dir  string // where to run it; under Repo, or anywhere that only needs reading
	Env  []string
	Repo string // shared with the host, for reading and writing
	// Modules is the folder lib/modules of the kernel, as the guest sees it.
	Modules string
	Release string        // the kernel's, which names a folder in Modules
	Host    time.Duration // what Work took on the host
	Cached  string        // a folder outside Repo that the program may read and write; "" = none
}

// Work is what host and guest are compared by: some computing, and some starting of
// programs, at which an emulator is slowest.
func Work() time.Duration {
	start := time.Now()
	block := make([]byte, 1<<20)
	sum := fnv.New64a() // no processor has an instruction of its own for it
	for range 8 {
		_, _ = sum.Write(block) // never fails
	}
	for range 10 {
		_ = exec.Command("/bin/true").Run() // only its time counts
	}
	return time.Since(start)
}
