package iptables

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// BenchmarkKEP3453 is the other side of BenchmarkScale: the same Services in the
// form that KEP-3453 gives to kube-proxy's rules (a flat KUBE-SERVICES, a chain
// for each Service and one for each endpoint, a comment on every rule), and its
// partial restore of one changed Service, which names KUBE-SERVICES whole. It is a
// model: with nf_tables programs and 10 000 Services kube-proxy itself never ends
// its first restore, so that it cannot be measured there.
func BenchmarkKEP3453(b *testing.B) { eachBackendAtSize(b, benchKEP) }

func benchKEP(b *testing.B, backend iptables.Backend, size int) {
	ns, flat := ownNetns(b, backend), kepModel{size: size}
	const perCall = 250 // of all at once nf_tables programs make no end
	c := cpuTime()
	for first := 0; first < size; first += perCall {
		flat.restore(b, ns, func(w *bytes.Buffer) {
			for i := first; i < min(first+perCall, size); i++ {
				flat.service(w, i, 0)
			}
		})
	}
	flat.restore(b, ns, flat.dispatch)
	b.ReportMetric(float64((cpuTime()-c).Microseconds())/1000, "cpu-ms/build")
	const changes = 5
	c, w := cpuTime(), time.Now()
	for i := range changes {
		flat.restore(b, ns, func(w *bytes.Buffer) {
			flat.service(w, size/2, i+1)
			flat.dispatch(w)
		})
	}
	b.ReportMetric(float64((cpuTime()-c).Microseconds())/1000/changes, "cpu-ms/change")
	b.ReportMetric(float64(time.Since(w).Microseconds())/1000/changes, "wall-ms/change")
	b.ReportMetric(0, "ns/op")
}

// kepModel writes rules as kube-proxy does.
type kepModel struct{ size int }

func (m kepModel) restore(b *testing.B, ns *netns, write func(*bytes.Buffer)) {
	b.Helper()
	var w bytes.Buffer
	w.WriteString("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n")
	write(&w)
	w.WriteString("COMMIT\n")
	if _, err := ns.Restore(context.Background(), iptables.Restore{Family: iptables.IPv4, Input: w.Bytes(), Commits: 1}); err != nil {
		b.Fatal(err)
	}
}

func (m kepModel) chain(kind string, i int) string { return fmt.Sprintf("KUBE-%s-%016X", kind, i) }

// service writes the chains of one Service and of its ten endpoints.
func (m kepModel) service(w *bytes.Buffer, i, change int) {
	fe := benchFrontend(i, 10, change)
	name, svc := fmt.Sprintf("default/svc-%d:http", i), m.chain("SVC", i)
	fmt.Fprintf(w, ":%s - [0:0]\n", svc)
	fmt.Fprintf(w, "-A %s -m comment --comment \"%s cluster IP\" -p tcp -d %s --dport 80 ! -s 10.128.0.0/9 -j KUBE-MARK-MASQ\n", svc, name, fe.Key.Addr)
	for j := range fe.Backends {
		m.endpoint(w, svc, name, fe.Backends[j], i*10+j+change<<20, len(fe.Backends)-j)
	}
}

func (m kepModel) endpoint(w *bytes.Buffer, svc, name string, e model.Backend, id, left int) {
	sep, to := m.chain("SEP", id), e.AddrPort()
	fmt.Fprintf(w, ":%s - [0:0]\n-A %s -m comment --comment \"%s -> %s\"", sep, svc, name, to)
	if left > 1 {
		fmt.Fprintf(w, " -m statistic --mode random --probability %0.10f", 1/float64(left))
	}
	fmt.Fprintf(w, " -j %s\n-A %s -m comment --comment %s -s %s -j KUBE-MARK-MASQ\n", sep, sep, name, e.Addr)
	fmt.Fprintf(w, "-A %s -m comment --comment %s -m tcp -p tcp -j DNAT --to-destination %s\n", sep, name, to)
}

// dispatch writes KUBE-SERVICES, whole.
func (m kepModel) dispatch(w *bytes.Buffer) {
	for i := range m.size {
		fmt.Fprintf(w, "-A KUBE-SERVICES -m comment --comment \"default/svc-%d:http cluster IP\" -m tcp -p tcp -d %s --dport 80 -j %s\n",
			i, benchFrontend(i, 1, 0).Key.Addr, m.chain("SVC", i))
	}
}
