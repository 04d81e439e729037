package offload

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// flowKernel is a kernel with flowtables: the real one, or the model.
type flowKernel interface {
	nft.Kernel
	Flowtables(context.Context, nft.TableRef) ([]nft.Flowtable, error)
}

// world is a kernel with devices.
type world struct {
	*testing.T
	k        flowKernel
	reader   flowKernel // for Survey: the same by a socket of its own
	other    nft.Kernel // a second client of the same kernel, for the writes of another program
	faulty   *nft.Faulty
	fake     *nft.Fake // nil: a real one
	names    []string  // of the fake's devices; the index is the place, from 1 on
	listings int
}

// onBoth runs a test on the model of the kernel and on the kernel.
func onBoth(t *testing.T, test func(*world)) {
	onModel(t, test)
	t.Run("kernel", func(t *testing.T) {
		netnstest.Enter(t)
		probe := exec.Command("nft", "add table inet probe; add flowtable inet probe f { hook ingress priority 0; }; delete table inet probe")
		if out, err := probe.CombinedOutput(); err != nil {
			t.Skipf("needs a kernel with flowtables: %s", out) // test/vm/tests.txt has it run under one that does
		}
		w := &world{T: t}
		w.k, w.other, w.reader = open(t), open(t), open(t)
		w.faulty = &nft.Faulty{Kernel: w.k}
		w.ip("link add eth0 type veth peer name veth1", "link set eth0 up", "link set veth1 up")
		test(w)
	})
}

// onModel runs a test on the model alone, because it tests this package and not the kernel.
func onModel(t *testing.T, test func(*world)) {
	t.Run("model", func(t *testing.T) {
		k := nft.NewFake()
		w := &world{T: t, k: k, reader: k, other: k.Neighbour(), fake: k, faulty: &nft.Faulty{Kernel: k}}
		w.setDevices("eth0", "veth1")
		test(w)
	})
}

func open(t *testing.T) *nft.Conn {
	t.Helper()
	k, err := nft.Open(nft.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func (w *world) ip(lines ...string) {
	w.Helper()
	for _, l := range lines {
		if out, err := exec.Command("ip", strings.Fields(l)...).CombinedOutput(); err != nil {
			w.Fatalf("ip %s: %v: %s", l, err, out)
		}
	}
}

// setDevices sets the devices of the model. Each call assigns new indices to all of them.
func (w *world) setDevices(names ...string) {
	w.listings++
	w.names = names
	w.fake.SetDevices(names...)
}

// recreate makes a device go and come back under its name.
func (w *world) recreate(name string) {
	w.Helper()
	if w.fake == nil {
		w.ip("link del "+name, "link add eth0 type veth peer name veth1", "link set eth0 up", "link set veth1 up")
		return
	}
	all := w.names
	w.setDevices(slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == name })...)
	w.setDevices(all...)
}

func (w *world) links() ([]model.Link, error) {
	if w.fake == nil {
		list, err := net.Interfaces()
		var out []model.Link
		for _, i := range list {
			if i.Flags&net.FlagUp != 0 {
				out = append(out, model.Link{Name: i.Name, Index: i.Index, MTU: i.MTU})
			}
		}
		return out, err
	}
	var out []model.Link
	for i, n := range w.names {
		out = append(out, model.Link{Name: n, Index: 100*w.listings + i})
	}
	return out, nil
}

// driver returns a new pair of drivers, as a start of the agent does.
func (w *world) driver(change func(*Params)) *Driver {
	w.Helper()
	d := w.made(w.faulty, change)
	if _, err := d.Probe(w.Context()); err != nil {
		w.Fatal(err)
	}
	return d
}

func (w *world) made(k nft.Kernel, change func(*Params)) *Driver {
	p := Params{Kernel: k, Flowtables: w.k.Flowtables, Ledger: &nft.Ledger{}, Threshold: 20, Links: w.links, Finder: w.k.(nft.Finder), Reader: w.reader}
	if change != nil {
		change(&p)
	}
	return New(nftables.New(nftables.Params{Kernel: k, Finder: w.k.(nft.Finder), Surveyor: w.reader, Ledger: p.Ledger, Beside: IsTable}), p)
}

// bed has a driver with the links as they are now.
func (w *world) bed(d *Driver) *dataplanetest.Bed {
	w.Helper()
	b := dataplanetest.NewBed(d, dataplanetest.View())
	b.View.Links, _ = w.links()
	return b
}

// start is a complete start: load, render, write. It returns what was written.
func (w *world) start(d *Driver, frontends ...model.Frontend) (*dataplanetest.Bed, int) {
	w.Helper()
	b := w.bed(d)
	b.Load(w)
	b.Base()
	for i := range frontends {
		b.Want(frontends[i].Service, frontends[i])
	}
	return b, b.Sync(w).Operations
}

// restartWith is a start with a view as it was.
func (w *world) restartWith(v model.NodeView, frontends ...model.Frontend) (*dataplanetest.Bed, int) {
	w.Helper()
	b := dataplanetest.NewBed(w.driver(nil), v)
	b.Load(w)
	b.Base()
	for i := range frontends {
		b.Want(frontends[i].Service, frontends[i])
	}
	return b, b.Sync(w).Operations
}

// rows is what stands in our tables, by family: readable lines, sorted.
func (w *world) rows() (out []string) {
	w.Helper()
	for _, f := range families() {
		t := tableRef(f)
		sets, err := w.other.Sets(w.Context(), t)
		if err != nil {
			w.Fatal(err)
		}
		for _, s := range sets {
			n := 0
			if err := w.other.Elements(w.Context(), s.Ref, func(*nft.Element) error { n++; return nil }); err != nil {
				w.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%s: %d of %d", s.Ref, n, s.Size))
		}
		rules, err := w.other.Rules(w.Context(), t)
		if err != nil {
			w.Fatal(err)
		}
		for i := range rules {
			text, _ := commentOf(rules[i].UserData)
			out = append(out, t.String()+" rule "+strings.Fields(text + " foreign")[0])
		}
		flows, err := w.k.Flowtables(w.Context(), t)
		if err != nil {
			w.Fatal(err)
		}
		for i := range flows {
			out = append(out, fmt.Sprintf("%s: devices %v, counter %v", flows[i].Ref, flows[i].Devices, flows[i].Counter))
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) want(lines ...string) {
	w.Helper()
	slices.Sort(lines)
	if got := w.rows(); !slices.Equal(got, lines) {
		w.Errorf("the tables hold\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// Frontends of each sort that matters here, of IPv4.
func plain(i int) model.Frontend { return dataplanetest.ClusterIP(model.IPv4, i, 2) }

func with(f model.Frontend, change func(*model.Frontend)) model.Frontend {
	change(&f)
	return f
}

func nodePort(i int) model.Frontend {
	return with(plain(i), func(f *model.Frontend) { f.Kind, f.Key.Addr, f.Key.Port = model.NodePort, netip.Addr{}, 30080 })
}
