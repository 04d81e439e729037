package iptables

import "context"

// tableReader reads a table from the kernel itself; read is Kernel.Read.
type tableReader interface {
	read(ctx context.Context, r Reading, emit func(line []byte) error) error
}
