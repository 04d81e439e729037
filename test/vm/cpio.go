package vm

import (
	"bytes"
	"fmt"
)

// archive is a cpio archive in the "newc" format, which the kernel unpacks as its first
// root file system (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	buf   bytes.Buffer
	inode int
}

const (
	modeFile = 0o100755
	modeDir  = 0o040755
)

func (a *archive) dir(name string) { a.put(name, modeDir, nil) }

func (a *archive) file(name string, content []byte) { a.put(name, modeFile, content) }

func (a *archive) put(name string, mode int, content []byte) {
	a.inode++
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	a.buf.WriteString(name)
	a.buf.WriteByte(0)
	a.pad()
	a.buf.Write(content)
	a.pad()
}

// pad fills up to a multiple of four bytes, where the next part begins.
func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

func (a *archive) bytes() []byte {
	a.put("TRAILER!!!", 0, nil)
	return a.buf.Bytes()
}
