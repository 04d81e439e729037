package sysctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// HashSize is not below /proc/sys: it is conntrack's module parameter, the
// number of its hash buckets.
const HashSize = "module/nf_conntrack/hashsize"

// Sysctl reads and writes settings by their path, "net/ipv4/ip_forward".
type Sysctl interface {
	Get(name string) (string, error)
	Set(name, value string) error
}

// Proc is the Sysctl of the real kernel.
type Proc struct{ sys, modules string }

var _ Sysctl = (*Proc)(nil)

// New returns the kernel's settings. Names below net/ refer to the network namespace
// of the calling thread.
func New() *Proc { return &Proc{sys: "/proc/sys", modules: "/sys/module"} }

func (p *Proc) path(name string) string {
	if name == HashSize {
		return filepath.Join(p.modules, "nf_conntrack/parameters/hashsize")
	}
	return filepath.Join(p.sys, name)
}

// Get returns the value without the newline.
func (p *Proc) Get(name string) (string, error) {
	b, err := os.ReadFile(p.path(name))
	if err != nil {
		return "", fmt.Errorf("get sysctl %s: %w", name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Set writes the value. The file must exist: an unknown
// name is an error, and creates no file.
func (p *Proc) Set(name, value string) error {
	f, err := os.OpenFile(p.path(name), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("set sysctl %s=%s: %w", name, value, err)
	}
	_, err = f.WriteString(value)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("set sysctl %s=%s: %w", name, value, err)
	}
	return nil
}
