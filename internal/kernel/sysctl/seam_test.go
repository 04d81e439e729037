package sysctl

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

func TestRealKernel(t *testing.T) {
	host := func() string {
		v, err := New().Get(routeLocalnet)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := host()
	err := netnstest.New(t).Do(func() error {
		p := New()
		if err := p.Set(routeLocalnet, "0"); err != nil {
			t.Error(err)
		}
		if c := EnsureRouteLocalnet(p); c == nil || c.Err != nil {
			t.Errorf("%+v", c)
		}
		if v, err := p.Get(routeLocalnet); err != nil || v != "1" {
			t.Errorf("%q, %v", v, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if after := host(); after != before {
		t.Errorf("the machine's own value went from %s to %s", before, after)
	}
}

func TestProcRefusesWhatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	p := &Proc{sys: dir, modules: dir}
	if err := p.Set("net/none", "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("set: %v", err)
	}
	if _, err := p.Get(HashSize); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("get: %v", err)
	}
	path := filepath.Join(dir, "nf_conntrack/parameters/hashsize")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("16\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Set(HashSize, "32"); err != nil {
		t.Error(err)
	}
	if v, err := p.Get(HashSize); err != nil || v != "32" {
		t.Errorf("%q, %v", v, err)
	}
}
