package config

import (
	"cmp"
	"net"
	"strconv"
	"time"

	netutils "k8s.io/utils/net"
)

// The ports of the two servers if an address specifies none.
const (
	healthzPort = 10256
	metricsPort = 10249
)

// setDefaults fills empty fields, as kube-proxy does: an empty string, null or 0 in
// a file means "default" (kubeadm writes them all out), not "off".
func (w *wire) setDefaults() {
	w.APIVersion, w.Kind = APIVersion, Kind
	setDefault(&w.BindAddress, "0.0.0.0")
	healthzHost, metricsHost := "0.0.0.0", "127.0.0.1"
	if ip := netutils.ParseIPSloppy(w.BindAddress); ip != nil && ip.To4() == nil {
		healthzHost, metricsHost = "::", "::1"
	}
	setDefault(&w.HealthzBindAddress, healthzHost)
	setDefault(&w.MetricsBindAddress, metricsHost)
	w.HealthzBindAddress = withPort(w.HealthzBindAddress, healthzPort)
	w.MetricsBindAddress = withPort(w.MetricsBindAddress, metricsPort)

	setDefault(&w.Mode, "nftables")
	setDefault(&w.DetectLocalMode, string(ClusterCIDR))
	if w.Mode == "nftables" && len(w.NodePortAddresses) == 0 {
		w.NodePortAddresses = []string{primary}
	}

	// kube-proxy delays syncs by 1 s (minSyncPeriod) because the cost of its
	// sync depends on the size of the whole state. Here the cost depends on the
	// size of the change, so the default is 0.
	for _, p := range []*duration{&w.IPTables.SyncPeriod, &w.IPVS.SyncPeriod, &w.NFTables.SyncPeriod} {
		setDefault(p, duration(30*time.Second))
	}
	setIfNil(&w.IPTables.MasqueradeBit, 14)
	setIfNil(&w.NFTables.MasqueradeBit, 14)
	setIfNil(&w.IPTables.LocalhostNodePorts, true)
	setIfNil(&w.OOMScoreAdj, -999)
	setIfNil(&w.Conntrack.MaxPerCore, 32<<10)
	setIfNil(&w.Conntrack.Min, 128<<10)
	setIfNil(&w.Conntrack.TCPEstablishedTimeout, duration(24*time.Hour))
	// One hour instead of the kernel's 60 s: a FIN that arrives after the entry
	// is gone is not translated any more (kubernetes#32551).
	setIfNil(&w.Conntrack.TCPCloseWaitTimeout, duration(time.Hour))
	setDefault(&w.ConfigSyncPeriod, duration(15*time.Minute))
	setDefault(&w.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	setDefault(&w.ClientConnection.QPS, 5)
	setDefault(&w.ClientConnection.Burst, 10)
	setDefault(&w.Logging.Format, "text")
}

func setDefault[T comparable](p *T, v T) { *p = cmp.Or(*p, v) }

func setIfNil[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// withPort adds the port to a bare IP. It returns any other value unchanged, and
// validation handles it.
func withPort(addr string, port int) string {
	if netutils.ParseIPSloppy(addr) == nil {
		return addr
	}
	return net.JoinHostPort(addr, strconv.Itoa(port))
}
