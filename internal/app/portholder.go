package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// portHolder returns the process that listens on a TCP port in the network namespace of this process, such as "kube-proxy (process 12)". It
// returns "" where it finds none: a process in another PID namespace is not visible.
func portHolder(proc string, port uint16) string {
	sockets := map[string]bool{} // as links in fd name them
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(proc, "thread-self/net", table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			const local, state, inode, listen = 1, 3, 9, "0A" // proc_net_tcp.rst
			if f := strings.Fields(line); len(f) > inode && f[state] == listen && strings.HasSuffix(f[local], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+f[inode]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return ""
	}
	fds, _ := filepath.Glob(filepath.Join(proc, "[0-9]*/fd/*"))
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || !sockets[to] {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			continue
		}
		return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(comm)), filepath.Base(dir))
	}
	return ""
}
