package vm

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// TestRelay reads the console of a machine that ran its program, and of one whose program never
// began.
func TestRelay(t *testing.T) {
	for _, c := range []struct {
		name, console, want string
		code                int
		told                bool
	}{
		{"a program that ends", "\x1bcSeaBIOS\r\n\x1b[?7lVM-BEGIN\r\nhello\r\n\r\nworld\r\nVM-EXIT 3\r\n[ 1.0] reboot: Power down\r\n", "hello\n\nworld\n", 3, true},
		{"a kernel that panics", "SeaBIOS\r\nKernel panic\r\n", "SeaBIOS\nKernel panic\n", 0, false},
		{"a machine that is ended", "VM-BEGIN\r\nhello", "hello\n", 0, false},
	} {
		var out bytes.Buffer
		began := false
		code, told := relay(strings.NewReader(c.console), &out, func() { began = true })
		if code != c.code || told != c.told || strings.TrimRight(out.String(), "\n") != strings.TrimRight(c.want, "\n") {
			t.Errorf("%s: code %d, told %v, output %q", c.name, code, told, out.String())
		}
		if began != strings.Contains(c.console, "VM-BEGIN") {
			t.Errorf("%s: told that it began: %v", c.name, began)
		}
	}
}

// TestArchive reads the archive back with cpio, or with busybox.
func TestArchive(t *testing.T) {
	var program []string
	for _, p := range [][]string{{"cpio", "-i", "-t", "--quiet"}, {"busybox", "cpio", "-i", "-t"}} {
		if _, err := exec.LookPath(p[0]); err == nil {
			program = p
			break
		}
	}
	if program == nil {
		t.Skip("neither cpio nor busybox is installed; the boot itself is the other test") // each boot reads such an archive
	}
	var a archive
	a.dir("m")
	a.file("m/one", []byte("1"))
	a.file("three", []byte("333"))
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdin = bytes.NewReader(a.bytes())
	out, err := cmd.Output()
	if got := strings.Fields(string(out)); err != nil || strings.Join(got, " ") != "m m/one three" {
		t.Fatalf("%q %v", got, err)
	}
}
