package nfacct

import "errors"

// Table is the counters of one network namespace. It is safe for concurrent use.
type Table interface {
	// Ensure creates a counter that starts from zero. An existing one keeps its
	// value.
	Ensure(name string) error
	// Read returns a counter's value, ErrNotFound if there is none of that name.
	Read(name string) (Count, error)
	// Delete deletes a counter. A missing one is no error; ErrInUse means
	// that a rule uses it.
	Delete(name string) error
	// List returns all counters, also those of other programs, in no order.
	List() ([]Count, error)
	Close() error
}

// Count is the state of one counter. The numbers only increase, from the counter's creation on.
type Count struct {
	Name    string
	Packets uint64
	Bytes   uint64 // whole packets of the network layer
}

// Errors for callers to distinguish.
var (
	ErrNotFound = errors.New("no such counter")
	ErrInUse    = errors.New("the counter is in use by a rule")
	// ErrUnsupported: the kernel has no such counters; any call may return it.
	ErrUnsupported = errors.New("the kernel lacks nfacct (CONFIG_NETFILTER_NETLINK_ACCT)")
)

// MaxName is the maximum length of a name in bytes (NFACCT_NAME_MAX, less the NUL).
const MaxName = 31

// errName: the kernel truncates longer names, and an empty one in a
// deletion means every counter of the namespace.
var errName = errors.New("a counter's name has 1 to 31 bytes")

func checkName(name string) error {
	if name == "" || len(name) > MaxName {
		return errName
	}
	return nil
}
