package config

import (
	"crypto/sha256"
	"net/netip"
	"time"
)

// Config is everything that an agent is told at start. Treat it as read-only.
type Config struct {
	Mode     string // one of Params.Modes
	ModeBy   string // who chose it where the settings do not name it: "default", "auto"
	NodeName string // trimmed, lower case; the host's name unless overridden

	Client    Client
	Manifests string // folder of manifests instead of an API server; "" = API server
	// ManifestsEmptyDeletes: a folder that is empty at the start means that there
	// is no Service, and is not one that has yet to be filled.
	ManifestsEmptyDeletes bool

	BindAddress         netip.Addr     // the node's primary address; unspecified = take the Node's
	BindAddressHardFail bool           // a listener that cannot bind ends the process
	Healthz             netip.AddrPort // invalid = off
	Metrics             netip.AddrPort // invalid = off
	Profiling           bool

	SyncPeriod       time.Duration // period of the audit; health gives up after twice this
	MinSyncPeriod    time.Duration // least pause between two syncs; 0 = none
	ConfigSyncPeriod time.Duration // accepted; our sources need no periodic resync

	MasqueradeAll      bool
	MasqueradeBit      uint8 // 0..31
	LocalhostNodePorts bool
	IPTablesBackend    string // "legacy" or "nft"; "" = the one that the host uses
	NodePorts          NodePorts
	DetectLocal        DetectLocal

	Conntrack    Conntrack
	IPVS         IPVS
	OOMScoreAdj  int             // -1000..1000
	FeatureGates map[string]bool // every gate of Kubernetes 1.36, with its value here
	Logging      Logging

	NoTakeover          bool   // leave what other proxies left here
	StartupTaint        string // key of the taint that the agent takes from its own Node after its first whole sync; "" = none
	NoExternalIPsOfNode bool   // an external IP that is an address of this node is not served
	ResetGoneEndpoints  bool   // end TCP connections to endpoints that no longer exist
	DNS                 DNS
	Userspace           Userspace
	Offload             Offload
	ServiceMetrics      int // rows for so many Service ports; 0: nothing is counted by Service

	InitOnly      bool   // do the privileged sysctl part, then exit
	Cleanup       bool   // remove every trace, then exit
	WriteConfigTo string // write the defaults to this file, then exit; "" = run
	ShowVersion   bool

	// File is the --config file, "" if none. It is the caller's to watch: a
	// change must end the process, so that it starts again with the new one.
	File       string
	FileDigest [sha256.Size]byte // of what was read, so that no later change is missed
	// Warnings are for the operator, to be logged once, each a line.
	Warnings []string

	wire  wire     // what Configz shows
	given []string // see Given
}

// Given are the flags that were given, NAME=VALUE, for people.
func (c *Config) Given() []string { return c.given }

// Client says how to reach the API server. With Kubeconfig and Master empty it
// is the cluster that this pod runs in.
type Client struct {
	Kubeconfig         string
	Master             string // overrides the server named in Kubeconfig
	ContentType        string
	AcceptContentTypes string
	QPS                float32
	Burst              int
}

// NodePorts chooses the node's addresses on which NodePorts answer: with
// Primary the Node's primary address of each family, else those inside a
// prefix of CIDRs, else (both empty) all of them.
type NodePorts struct {
	Primary bool
	CIDRs   []netip.Prefix
}

// LocalMode is kube-proxy's detectLocalMode, in its spelling.
type LocalMode string

// The modes.
const (
	ClusterCIDR         LocalMode = "ClusterCIDR"
	NodeCIDR            LocalMode = "NodeCIDR"
	BridgeInterface     LocalMode = "BridgeInterface"
	InterfaceNamePrefix LocalMode = "InterfaceNamePrefix"
)

// DetectLocal says how pod traffic is told from other traffic.
type DetectLocal struct {
	Mode         LocalMode
	ClusterCIDRs []netip.Prefix // at most one of each family
	Bridge       string
	Prefix       string
}

// Conntrack are the limits and timeouts to set in the kernel; 0 leaves a value
// as it is.
type Conntrack struct {
	MaxPerCore     int
	Min            int
	TCPEstablished time.Duration
	TCPCloseWait   time.Duration
	TCPBeLiberal   bool
	UDP            time.Duration
	UDPStream      time.Duration
}

// IPVS are the settings of ipvs mode.
type IPVS struct {
	Scheduler    string // "" = rr
	ExcludeCIDRs []netip.Prefix
	StrictARP    bool
	TCP          time.Duration // 0 = leave
	TCPFin       time.Duration
	UDP          time.Duration
	DrainGrace   time.Duration // how long a removed TCP or SCTP endpoint keeps its connections
}

// Logging is what logs look like.
type Logging struct {
	Format    string // "text" or "json"
	Verbosity int    // klog's -v; 0 = quiet
}

// Params is what Load needs beside the flags.
type Params struct {
	Modes []string // modes that are built, e.g. "nftables"
	// Choose returns the mode to run in for the one that was asked for, with the backend of
	// iptables behind a dash if that is chosen too ("iptables-legacy"). nil: what was asked for.
	Choose   func(asked, backend string) (string, error)
	Hostname func() (string, error) // os.Hostname
}
