package nfacct

import "errors"

// Table holds the counters of one network namespace. Any goroutine may use it.
type Table interface {
	// Ensure makes a counter that starts from zero. One that is there keeps its
	// value.
	Ensure(name string) error
	// Read returns a counter's value, ErrNotFound if there is none of that name.
	Read(name string) (Count, error)
	// Delete deletes a counter. One that is not there is no error; ErrInUse says
	// that a rule counts with it.
	Delete(name string) error
	// List returns all counters, ours and others', in no order.
	List() ([]Count, error)
	Close() error
}

// Count is one counter. The numbers only grow, from the counter's making on.
type Count struct {
	Name    string
	Packets uint64
	Bytes   uint64 // whole packets of the network layer
}

// Errors that callers tell apart.
var (
	ErrNotFound = errors.New("no such counter")
	ErrInUse    = errors.New("the counter is in use by a rule")
	// ErrUnsupported: the kernel has no such counters, any call may give it.
	ErrUnsupported = errors.New("the kernel lacks nfacct (CONFIG_NETFILTER_NETLINK_ACCT)")
)

// MaxName is how many bytes a name may have (NFACCT_NAME_MAX, less the NUL).
const MaxName = 31

// errName: the kernel cuts off names that are longer, and an empty one in a
// deletion means every counter of the namespace.
var errName = errors.New("a counter's name has 1 to 31 bytes")

func checkName(name string) error {
	if name == "" || len(name) > MaxName {
		return errName
	}
	return nil
}
