package vm

import (
	"hash/fnv"
	"os/exec"
	"time"
)

// Order is what the guest's PID 1 must run; PID 1 reads it from /order.json.
type Order struct {
	Args []string
	Dir  string // where to run it; below Repo, or any folder that is only read
	Env  []string
	Repo string // shared with the host, for reading and writing
	// Modules is the folder lib/modules of the kernel, as the guest sees it.
	Modules string
	Release string        // the kernel's, which names a folder in Modules
	Host    time.Duration // what Work took on the host
	Cached  string        // a folder outside Repo that the program may read and write; "" = none
}

// Work is the work by which host and guest are compared: some computing, and some
// starts of programs, at which an emulator is slowest. It returns the time that the
// work took.
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
