package archtest

import "slices"

// row says what the non-test files of a package may import, besides the standard
// library and packages below themselves.
type row struct {
	pkg      string   // folder below the module's root
	internal []string // of internal/; "*" = all
	outside  []string // prefixes of other modules' import paths
	pure     bool     // no I/O, no clock, no chance, no logging
	why      string   // what would be lost otherwise
}

// table is the "May import" column of docs/design. Arrows point at model.
func table() []row {
	return slices.Concat(coreRows(), edgeRows(), planeRows(), kernelRows())
}

func coreRows() []row {
	return []row{
		{pkg: "internal/model", pure: true,
			why: "every package speaks in model's values: what it imports, all import, and a Kubernetes type in it would reach the data planes"},
		{pkg: "internal/state", internal: []string{"model"}, pure: true,
			why: "state only folds events into inputs; with I/O in it, 'incremental equals from scratch' could not be tested"},
		{pkg: "internal/policy", internal: []string{"model"}, pure: true,
			why: "policy is the only place that decides, and it is a pure function of its inputs: no I/O, no clock, no Kubernetes type"},
		{pkg: "internal/delta", pure: true,
			why: "the one diff is generic: it must not know what it compares"},
		{pkg: "internal/mailbox", internal: []string{"model"},
			why: "the mailbox stands between sources and engine and knows neither"},
		{pkg: "internal/engine", internal: []string{"model", "state", "policy", "delta", "dataplane"},
			why: "the engine drives the straight line; it reaches the kernel and the sources through contracts only"},
		{pkg: "internal/app", internal: []string{"*"}, outside: []string{""},
			why: "app is the only wiring"},
		{pkg: "internal/archtest", why: "tests only"},
	}
}

func edgeRows() []row {
	kubernetes := []string{"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/utils/"}
	return []row{
		{pkg: "internal/config", internal: []string{"model"},
			outside: []string{"github.com/spf13/pflag", "sigs.k8s.io/yaml", "sigs.k8s.io/json", "k8s.io/utils/net"},
			why:     "config is read before anything runs"},
		{pkg: "internal/source", why: "a folder with a doc.go, or the contract of sources"},
		{pkg: "internal/source/convert", internal: []string{"model"}, outside: kubernetes,
			why: "one reading of the Kubernetes objects for every source"},
		{pkg: "internal/source/file", internal: []string{"model", "source/convert"},
			outside: append([]string{"golang.org/x/sys/unix", "sigs.k8s.io/yaml", "sigs.k8s.io/json"}, kubernetes...),
			why:     "sources give events and see neither engine nor data plane"},
		{pkg: "internal/source/exclusions", internal: []string{"model"}, outside: []string{"github.com/fsnotify/fsnotify"},
			why: "a source gives events and sees neither engine nor data plane"},
		{pkg: "internal/source/k8s", internal: []string{"model", "source/convert"},
			outside: append([]string{"k8s.io/client-go/", "k8s.io/klog/"}, kubernetes...),
			why:     "the only importer of client-go"},
		{pkg: "internal/node", internal: []string{"model", "kernel/link"},
			why: "node gives the machine's addresses as events, like any source"},
		{pkg: "internal/conntrack", internal: []string{"model", "kernel/conntrack"},
			why: "the cleaner follows commits; the straight line must not wait for it"},
		{pkg: "internal/dns", internal: []string{"model"},
			outside: []string{"github.com/miekg/dns", "github.com/prometheus/client_golang/", "golang.org/x/sys/unix"},
			why:     "DNS asks for its interception by desired entries and never writes rules"},
		{pkg: "internal/dns/intercept", internal: []string{"kernel/nft"},
			outside: []string{"github.com/miekg/dns", "github.com/vishvananda/netlink", "golang.org/x/sys/unix"},
			why:     "the interception has a table and a link of its own; DNS itself knows of neither"},
		{pkg: "internal/wait", internal: []string{"dns"}, outside: []string{"github.com/miekg/dns", "github.com/spf13/cobra"},
			why: "wait is a client: it asks servers over the network and shares nothing with the agent's process"},
		{pkg: "internal/fastpath", internal: []string{"kernel/nft"}, outside: []string{"github.com/vishvananda/netlink", "golang.org/x/sys/unix"},
			why: "the self-test has namespaces of its own and must not depend on the data plane that it speaks of"},
		{pkg: "internal/takeover", internal: []string{"kernel/iptables", "kernel/nft", "kernel/ipvs"},
			why: "takeover works beside the engine; whose a name is, the data planes tell it through app"},
		{pkg: "internal/localhost", internal: []string{"model"},
			why: "the listeners follow commits; the straight line must not wait for a socket"},
		{pkg: "internal/choose",
			why: "which mode is chosen is one rule over what others found out; it tries nothing itself"},
		{pkg: "internal/health", internal: []string{"model"},
			why: "health reads commits; it must be able to say that the engine hangs"},
		{pkg: "internal/control", outside: []string{"golang.org/x/net/netutil", "golang.org/x/sys/unix"},
			why: "the control socket carries questions and answers and knows none of their subjects"},
		{pkg: "internal/handover", internal: []string{"control"}, outside: []string{"golang.org/x/sys/unix"},
			why: "a handover carries things and descriptors from one agent to the next and knows none of their subjects"},
		{pkg: "internal/inspect", internal: []string{"model", "state", "policy", "engine", "dataplane"},
			why: "answers are read from what was decided; nothing here decides or writes"},
		{pkg: "internal/inspect/page", internal: []string{"inspect"},
			why: "a page is written from an answer; what it shows, it is given"},
		{pkg: "internal/inspect/cli", internal: []string{"control", "inspect"}, outside: []string{"github.com/spf13/cobra", "sigs.k8s.io/yaml"},
			why: "the commands that ask are clients: they share nothing with the agent's process but the form of its answers"},
		{pkg: "internal/traffic", internal: []string{"model"},
			why: "traffic adds up what it is told; where the numbers come from differs by mode"},
		{pkg: "internal/metrics", internal: []string{"model"}, outside: []string{"github.com/prometheus/client_golang/"},
			why: "metrics are fed plain values, so that no package depends on how they are kept"},
	}
}

func planeRows() []row {
	plane := func(name string, kernel ...string) row {
		return row{pkg: "internal/dataplane/" + name, internal: append([]string{"model", "dataplane"}, kernel...),
			outside: []string{"golang.org/x/sys/unix"},
			why:     "a data plane can be deleted without touching another: it sees the contract and its own kernel seam"}
	}
	return []row{
		{pkg: "internal/dataplane", internal: []string{"model"}, why: "the contract decides nothing and touches nothing"},
		{pkg: "internal/dataplane/dataplanetest", internal: []string{"model", "dataplane", "delta", "kernel/nft"},
			why: "one suite for every driver, so it knows none; what strangers do to nftables is the same for two of them"},
		plane("nftables", "kernel/nft"),
		plane("offload", "kernel/nft"),
		plane("iptables", "kernel/iptables", "kernel/nfacct"),
		plane("ipvs", "kernel/ipvs", "kernel/nft"),
		plane("userspace", "relay", "addressplan", "handover", "kernel/link"),
		{pkg: "internal/relay", internal: []string{"model"}, outside: []string{"golang.org/x/sys/unix"},
			why: "the relay carries bytes and decides nothing but which of the given endpoints is next"},
		{pkg: "internal/addressplan", internal: []string{"model"}, pure: true,
			why: "where userspace mode listens is one rule, asked by data plane and DNS alike: without state it is the same after a restart"},
	}
}

func kernelRows() []row {
	seam := func(name string, outside ...string) row {
		return row{pkg: "internal/kernel/" + name, outside: append(outside, "golang.org/x/sys/unix"),
			why: "a kernel seam is narrow: the standard library and the one library it wraps"}
	}
	over := func(name string, outside ...string) row { // netfilter's netlink
		r := seam(name, outside...)
		r.internal = []string{"kernel/netlink"}
		return r
	}
	netlink := []string{"github.com/mdlayher/netlink", "github.com/vishvananda/netlink"}
	tables := seam("iptables")
	tables.internal = []string{"kernel/iptables/xt", "kernel/iptables/nftsave", "kernel/netlink"}
	save := over("iptables/nftsave")
	save.internal = append(save.internal, "kernel/iptables/xt")
	return []row{
		over("nft"), tables, save, over("ipvs", netlink...),
		seam("link", netlink...), over("conntrack"), seam("sysctl"), seam("netnstest"),
		{pkg: "internal/kernel/iptables/xt", pure: true, why: "what bytes of x_tables say in words is a function of them; both backends ask it"},
		over("nfacct", "github.com/mdlayher/netlink"), seam("netlink", "github.com/mdlayher/netlink"),
	}
}
