package iptables

import "golang.org/x/sys/unix"

// copyRoom is memory for the kernel's copy of a table, apart from Go's.
type copyRoom struct {
	bytes []byte
	found chan struct{} // closed once nobody is at work on the pages any more
}

// mapped returns zeroed memory. The kernel finds and clears each page when it is first
// touched, which is a sixth of what a copy costs: that is done on another processor,
// beside the kernel's first look through the table.
func mapped(size int) (*copyRoom, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // a wish
	room := &copyRoom{b, make(chan struct{})}
	go func() {
		defer close(room.found)
		_ = unix.Madvise(b, unix.MADV_POPULATE_WRITE) // since Linux 5.14; otherwise the copy finds the pages
	}()
	return room, nil
}

// cut ends the kernel's copy: it cannot write to the memory any more, so it gives up with EFAULT.
func (r *copyRoom) cut() {
	_ = unix.Mprotect(r.bytes, unix.PROT_NONE) // fails for memory that is none of mapped's only; then the copy goes on
}

// release returns the memory back.
func (r *copyRoom) release() {
	<-r.found
	_ = unix.Munmap(r.bytes) // fails for memory that is none of mapped's only
}
