package kit

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

//go:embed nodes.yaml
var nodesYAML string

// baseFiles returns the manifests that every scenario starts with, except those that its header excludes with `without`.
func (v Variant) baseFiles() ([]File, error) {
	if slices.Contains(v.Scenario.Without, "nodes.yaml") {
		return nil, nil
	}
	data, err := v.expand("nodes.yaml", nodesYAML)
	return []File{{Name: "nodes.yaml", Data: data}}, err
}

// Canary is a Service whose only endpoint changes its port with each generation. When it answers on the new port, all changes that were applied
// before it are in the kernel too. After that, a scenario can rely on the absence of an answer.
type Canary struct{ generation int }

// Addresses of the canary. No scenario may use VIP 250.
var (
	canaryVIP4 = netip.MustParseAddrPort("10.96.0.250:7000")
	canaryVIP6 = netip.MustParseAddrPort("[fd00:10:96::250]:7000")
)

func (c *Canary) port() uint16 { return uint16(7001 + c.generation%2) }

// Next returns the manifest of the next generation.
func (c *Canary) Next() File {
	c.generation++
	text := `apiVersion: v1
kind: Service
metadata: {name: canary, namespace: default}
spec:
  clusterIP: "10.96.0.250"
  clusterIPs: ["10.96.0.250", "fd00:10:96::250"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  ports: [{name: canary, port: 7000, targetPort: 7001, protocol: TCP}]
`
	for _, s := range []struct{ family, ip string }{{"IPv4", "10.244.1.11"}, {"IPv6", "fd00:10:244:1::11"}} {
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: canary-%s, namespace: default, labels: {kubernetes.io/service-name: canary}}
addressType: %s
ports: [{name: canary, port: %d, protocol: TCP}]
endpoints: [{addresses: [%q], nodeName: node-a, conditions: {ready: true}}]
`, map[string]string{"IPv4": "a", "IPv6": "b"}[s.family], s.family, c.port(), s.ip)
	}
	return File{Name: "zz-canary.yaml", Data: text}
}

// Wait returns when the current generation answers in both families. It sends its requests on node-a itself.
func (c *Canary) Wait(ctx context.Context, lab *netlab.Lab, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(limit))
	defer cancel()
	for _, vip := range []netip.AddrPort{canaryVIP4, canaryVIP6} {
		for {
			once, stop := context.WithTimeout(ctx, patience.Of(200*time.Millisecond))
			rep := lab.Node().Ask(once, netlab.TCP, vip)
			stop()
			if rep.Outcome == netlab.Answered && rep.Port == c.port() {
				break
			}
			if sleep(ctx, patience.Pause(5*time.Millisecond)) != nil {
				return fmt.Errorf("the change did not reach the kernel within %s: canary %s: %s", limit, vip, rep)
			}
		}
	}
	return nil
}
