package handover

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		out[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return out[0], out[1]
}

// FuzzReceive: whatever an agent is sent as a batch, with whatever descriptors, it gives
// Items that have the files which they say, or an error, and keeps no other file open.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(wordEnd), uint8(0))
	f.Add([]byte(wordEnd), uint8(37)) // with descriptors that nobody has asked for
	f.Add([]byte(`[{"kind":"socket","key":"127.0.0.1:80/TCP","file":true},{"kind":"clients","key":"x","value":"[]"}]`), uint8(1))
	f.Add([]byte(`[{"kind":"flow","file":true}]`), uint8(0))
	f.Add([]byte(`[]`), uint8(3))
	f.Add([]byte(`null`), uint8(1))
	f.Add([]byte(`{"kind":1}`), uint8(2))
	f.Fuzz(func(t *testing.T, text []byte, files uint8) {
		a, b := pair(t)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close() //nolint:errcheck // it was closed for those who wrote
		var fds []int
		for range files % batchItems {
			fd, err := number(w)
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, fd)
		}
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		if _, _, err := a.WriteMsgUnix(text, oob, nil); err != nil {
			t.Skip("no message") // too large for one
		}
		_ = w.Close()
		list, err := wire{c: b, limit: time.Minute}.receive()
		for i := range list {
			if err != nil || list[i].HasFile != (list[i].File != nil) {
				t.Errorf("%+v, %v", list[i], err)
			}
		}
		closeFiles(list)
		_ = r.SetReadDeadline(time.Now().Add(limit()))
		if n, err := r.Read(make([]byte, 1)); n != 0 || os.IsTimeout(err) {
			t.Errorf("the pipe still has a writer: a descriptor was kept (%v)", err)
		}
	})
}
