package ipvs

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// TestSuiteOnKernel runs where the kernel has IPVS: in the emulated machines of test/vm.
func TestSuiteOnKernel(t *testing.T) {
	dataplanetest.Run(t, func(t *testing.T) *dataplanetest.Subject {
		s := subject(t, kernelBed(t))
		s.Steps = 30 // an emulated kernel is slow, and the model has made all of them
		return s
	})
}

// kernelBed moves the calling goroutine, for good, to a network namespace of its own.
func kernelBed(t testing.TB) bed {
	t.Helper()
	ns := netnstest.Enter(t)
	// Without any address there is no table of local ones, and IPVS takes every address for a broadcast.
	if err := ns.Do(func() error { return exec.Command("ip", "link", "set", "lo", "up").Run() }); err != nil {
		t.Fatal(err)
	}
	serve := func() (ipvs.Kernel, ipvs.Addresses) {
		servers, err := ipvs.Open(ipvs.Config{NetNS: ns.FD()})
		if errors.Is(err, ipvs.ErrNoIPVS) {
			t.Skip("needs a kernel with IPVS: test/vm runs this test under two") // no IPVS in this kernel; TestSuiteOnKernel stands in test/vm/tests.txt, and make test fails if it skips there
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = servers.Close() })
		links, err := ipvs.OpenLink()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(links.Close)
		return servers, links
	}
	open := func() *nft.Conn {
		c, err := nft.Open(nft.Config{NetNS: ns.FD()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	servers, links := serve()
	besideServers, besideLinks := serve()
	return bed{open(), open(), servers, links, Sockets{open(), besideServers, besideLinks}}
}
