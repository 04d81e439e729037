package sysctl

import (
	"fmt"
	"os"
)

// Fake is a Sysctl in memory, for tests. Like the kernel it rejects unknown names
// and writes to those that are read-only here.
type Fake struct {
	Values   map[string]string
	ReadOnly map[string]bool
	Sets     []string // "name=value", in order
}

var _ Sysctl = (*Fake)(nil)

// Get implements Sysctl.
func (f *Fake) Get(name string) (string, error) {
	v, ok := f.Values[name]
	if !ok {
		return "", fmt.Errorf("get sysctl %s: %w", name, os.ErrNotExist)
	}
	return v, nil
}

// Set implements Sysctl.
func (f *Fake) Set(name, value string) error {
	if _, ok := f.Values[name]; !ok {
		return fmt.Errorf("set sysctl %s=%s: %w", name, value, os.ErrNotExist)
	}
	if f.ReadOnly[name] {
		return fmt.Errorf("set sysctl %s=%s: %w", name, value, os.ErrPermission)
	}
	f.Values[name] = value
	f.Sets = append(f.Sets, name+"="+value)
	return nil
}
