package iptables

import "context"

// tableReader reads a table directly from the kernel; read is Kernel.Read.
type tableReader interface {
	read(ctx context.Context, r Reading, emit func(line []byte) error) error
}
