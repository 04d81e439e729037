package config

import (
	"crypto/sha256"
	"net/netip"
	"time"
)

// Config is the complete configuration of an agent. It is read-only after Load.
type Config struct {
	Mode     string // one of Params.Modes
	ModeBy   string // what chose it if the settings do not specify it: "default", "auto"
	NodeName string // trimmed, lower case; the host's name unless overridden

	Client    Client
	Manifests string // folder of manifests instead of an API server; "" = API server
	// ManifestsEmptyDeletes: a folder that is empty at startup means that there
	// is no Service. Otherwise such a folder counts as not filled yet.
	ManifestsEmptyDeletes bool

	BindAddress         netip.Addr     // the node's primary address; unspecified = use the Node's
	BindAddressHardFail bool           // a listener that cannot bind ends the process
	Healthz             netip.AddrPort // invalid = off
	Metrics             netip.AddrPort // invalid = off
	Profiling           bool

	SyncPeriod       time.Duration // period of the audit; the agent is unhealthy after twice this time
	MinSyncPeriod    time.Duration // shortest pause between two syncs; 0 = none
	ConfigSyncPeriod time.Duration // accepted without effect: the sources need no periodic resync

	MasqueradeAll      bool
	MasqueradeBit      uint8 // 0..31
	LocalhostNodePorts bool
	IPTablesBackend    string // "legacy" or "nft"; "" = the one that the host uses
	NodePorts          NodePorts
	DetectLocal        DetectLocal

	Conntrack    Conntrack
	IPVS         IPVS
	OOMScoreAdj  int             // -1000..1000
	FeatureGates map[string]bool // every gate of Kubernetes 1.36, with its value for this agent
	Logging      Logging

	NoTakeover          bool   // keep the rules that other proxies left on this node
	StartupTaint        string // key of the taint that the agent removes from its own Node after its first complete sync; "" = none
	NoExternalIPsOfNode bool   // an external IP that is an address of this node is not served
	ResetGoneEndpoints  bool   // end TCP connections to endpoints that no longer exist
	DNS                 DNS
	Userspace           Userspace
	Offload             Offload
	ServiceMetrics      int // rows for this many Service ports; 0: nothing is counted per Service

	InitOnly      bool   // do the privileged sysctl part, then exit
	Cleanup       bool   // remove all of the agent's state from this node, then exit
	WriteConfigTo string // write the defaults to this file, then exit; "" = run
	ShowVersion   bool

	// File is the --config file, "" if there is none. The caller must watch it:
	// a change must end the process, so that it restarts with the new file.
	File       string
	FileDigest [sha256.Size]byte // of the content that was read, so that no later change is missed
	// Warnings are messages for the operator, one line each. The caller logs
	// them once.
	Warnings []string

	wire  wire     // the value that Configz returns
	given []string // see Given
}

// Given returns the flags that were set, as NAME=VALUE, for display.
func (c *Config) Given() []string { return c.given }

// Client specifies how to reach the API server. If Kubeconfig and Master are empty
// it is the server of the cluster that this pod runs in.
type Client struct {
	Kubeconfig         string
	Master             string // overrides the server named in Kubeconfig
	ContentType        string
	AcceptContentTypes string
	QPS                float32
	Burst              int
}

// NodePorts selects the node's addresses on which NodePorts answer: with Primary
// the Node's primary address of each family, else the addresses inside a prefix of
// CIDRs, else (both empty) all addresses.
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

// DetectLocal specifies how pod traffic is distinguished from other traffic.
type DetectLocal struct {
	Mode         LocalMode
	ClusterCIDRs []netip.Prefix // at most one of each family
	Bridge       string
	Prefix       string
}

// Conntrack holds the limits and timeouts to set in the kernel. 0 leaves the
// kernel's value unchanged.
type Conntrack struct {
	MaxPerCore     int
	Min            int
	TCPEstablished time.Duration
	TCPCloseWait   time.Duration
	TCPBeLiberal   bool
	UDP            time.Duration
	UDPStream      time.Duration
}

// IPVS holds the settings of ipvs mode.
type IPVS struct {
	Scheduler    string // "" = rr
	ExcludeCIDRs []netip.Prefix
	StrictARP    bool
	TCP          time.Duration // 0 = keep the kernel's value
	TCPFin       time.Duration
	UDP          time.Duration
	DrainGrace   time.Duration // how long a removed TCP or SCTP endpoint keeps its connections
}

// Logging specifies the format and verbosity of logs.
type Logging struct {
	Format    string // "text" or "json"
	Verbosity int    // klog's -v; 0 = quiet
}

// Params holds the arguments of Load other than the flags.
type Params struct {
	Modes []string // modes that are built, e.g. "nftables"
	// Choose returns the mode to run in for the requested one. If it also chooses the backend of
	// iptables, the backend follows after a dash ("iptables-legacy"). If Choose is nil, the
	// requested mode is used.
	Choose   func(asked, backend string) (string, error)
	Hostname func() (string, error) // os.Hostname
}
