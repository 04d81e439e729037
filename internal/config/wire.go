package config

import (
	"encoding/json"
	"fmt"
	"time"
)

// APIVersion and Kind are the required type of a configuration file.
const (
	Group      = "kubeproxy.config.k8s.io"
	APIVersion = Group + "/v1alpha1"
	Kind       = "KubeProxyConfiguration"
)

// wire is KubeProxyConfiguration v1alpha1 as it stands in a file and in /configz.
// It is declared here because k8s.io/kube-proxy/config/v1alpha1 brings
// component-base's logging, its global metrics registry and OpenTelemetry into
// every agent (36 packages) for one struct.
type wire struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	FeatureGates                map[string]bool `json:"featureGates,omitempty"`
	ClientConnection            wireClient      `json:"clientConnection"`
	Logging                     wireLogging     `json:"logging,omitempty"`
	HostnameOverride            string          `json:"hostnameOverride"`
	BindAddress                 string          `json:"bindAddress"`
	HealthzBindAddress          string          `json:"healthzBindAddress"`
	MetricsBindAddress          string          `json:"metricsBindAddress"`
	BindAddressHardFail         bool            `json:"bindAddressHardFail"`
	EnableProfiling             bool            `json:"enableProfiling"`
	ShowHiddenMetricsForVersion string          `json:"showHiddenMetricsForVersion"`
	Mode                        string          `json:"mode"`
	IPTables                    wireIPTables    `json:"iptables"`
	IPVS                        wireIPVS        `json:"ipvs"`
	NFTables                    wireNFTables    `json:"nftables"`
	Winkernel                   wireWinkernel   `json:"winkernel"`
	DetectLocalMode             string          `json:"detectLocalMode"`
	DetectLocal                 wireDetectLocal `json:"detectLocal"`
	ClusterCIDR                 string          `json:"clusterCIDR"`
	NodePortAddresses           []string        `json:"nodePortAddresses"`
	OOMScoreAdj                 *int32          `json:"oomScoreAdj"`
	Conntrack                   wireConntrack   `json:"conntrack"`
	ConfigSyncPeriod            duration        `json:"configSyncPeriod"`
	PortRange                   string          `json:"portRange"`
	WindowsRunAsService         bool            `json:"windowsRunAsService,omitempty"`
	OffloadPacketThreshold      *int32          `json:"offloadPacketThreshold,omitempty"` // Fairlead's; KEP-4963 names no field
}

type wireClient struct {
	Kubeconfig         string  `json:"kubeconfig"`
	AcceptContentTypes string  `json:"acceptContentTypes"`
	ContentType        string  `json:"contentType"`
	QPS                float32 `json:"qps"`
	Burst              int32   `json:"burst"`
}

type wireLogging struct {
	Format         string         `json:"format,omitempty"`
	FlushFrequency any            `json:"flushFrequency,omitempty"` // a number of ns or "5s"; the agent does not buffer
	Verbosity      uint32         `json:"verbosity"`
	VModule        []wireVModule  `json:"vmodule,omitempty"`
	Options        map[string]any `json:"options,omitempty"`
}

type wireVModule struct {
	FilePattern string `json:"filePattern"`
	Verbosity   uint32 `json:"verbosity"`
}

type wireIPTables struct {
	MasqueradeBit      *int32   `json:"masqueradeBit"`
	MasqueradeAll      bool     `json:"masqueradeAll"`
	LocalhostNodePorts *bool    `json:"localhostNodePorts"`
	SyncPeriod         duration `json:"syncPeriod"`
	MinSyncPeriod      duration `json:"minSyncPeriod"`
}

type wireNFTables struct {
	MasqueradeBit *int32   `json:"masqueradeBit"`
	MasqueradeAll bool     `json:"masqueradeAll"`
	SyncPeriod    duration `json:"syncPeriod"`
	MinSyncPeriod duration `json:"minSyncPeriod"`
}

type wireIPVS struct {
	SyncPeriod    duration `json:"syncPeriod"`
	MinSyncPeriod duration `json:"minSyncPeriod"`
	Scheduler     string   `json:"scheduler"`
	ExcludeCIDRs  []string `json:"excludeCIDRs"`
	StrictARP     bool     `json:"strictARP"`
	TCPTimeout    duration `json:"tcpTimeout"`
	TCPFinTimeout duration `json:"tcpFinTimeout"`
	UDPTimeout    duration `json:"udpTimeout"`
}

type wireConntrack struct {
	MaxPerCore            *int32    `json:"maxPerCore"`
	Min                   *int32    `json:"min"`
	TCPEstablishedTimeout *duration `json:"tcpEstablishedTimeout"`
	TCPCloseWaitTimeout   *duration `json:"tcpCloseWaitTimeout"`
	TCPBeLiberal          bool      `json:"tcpBeLiberal"`
	UDPTimeout            duration  `json:"udpTimeout"`
	UDPStreamTimeout      duration  `json:"udpStreamTimeout"`
}

type wireDetectLocal struct {
	BridgeInterface     string `json:"bridgeInterface"`
	InterfaceNamePrefix string `json:"interfaceNamePrefix"`
}

// wireWinkernel is read so that a file shared with Windows nodes is accepted.
type wireWinkernel struct {
	NetworkName           string `json:"networkName"`
	SourceVip             string `json:"sourceVip"`
	EnableDSR             bool   `json:"enableDSR"`
	RootHnsEndpointName   string `json:"rootHnsEndpointName"`
	ForwardHealthCheckVip bool   `json:"forwardHealthCheckVip"`
}

// duration is a time.Duration written "1m30s".
type duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%s is not a duration such as \"30s\"", b)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return err
	}
	*d = duration(v)
	return nil
}
