package iptables

import "golang.org/x/sys/unix"

// copyRoom is memory for the kernel's copy of a table, outside Go's heap.
type copyRoom struct {
	bytes []byte
	found chan struct{} // closed once the pages have been populated
}

// mapped returns zeroed memory. The kernel allocates and clears each page on its first
// access, which is a sixth of the cost of a copy. A goroutine does that on another processor,
// concurrently with the kernel's first pass over the table.
func mapped(size int) (*copyRoom, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // optional
	room := &copyRoom{b, make(chan struct{})}
	go func() {
		defer close(room.found)
		_ = unix.Madvise(b, unix.MADV_POPULATE_WRITE) // since Linux 5.14; on older kernels the copy populates the pages
	}()
	return room, nil
}

// cut aborts the kernel's copy: the memory is no longer writable, so the copy fails with EFAULT.
func (r *copyRoom) cut() {
	_ = unix.Mprotect(r.bytes, unix.PROT_NONE) // fails only for memory that mapped did not return; then the copy continues
}

// release unmaps the memory.
func (r *copyRoom) release() {
	<-r.found
	_ = unix.Munmap(r.bytes) // fails only for memory that mapped did not return
}
