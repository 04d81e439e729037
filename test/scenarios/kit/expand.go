package kit

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"
)

// family holds the values of all placeholders for one address family. Addresses follow the lab's address plan.
type family struct {
	name          string
	service       string // prefix before the number of a ClusterIP
	external      string // externalIPs: clients route them to node-a; no interface has them
	balancer      string // load balancer VIPs: routed in the same way
	wire, pod     string // wire: nodes and clients; pod: pods, by number of the node and of the host
	many          string // prefix of thousands of addresses; a scenario has to route them itself
	network       string
	any, loopback string
	bits          int
}

var (
	ipv4 = family{
		name: "IPv4", service: "10.96.0.", external: "198.51.100.", balancer: "203.0.113.", wire: "172.18.0.", pod: "10.244.%d.%d",
		many: "10.245.%d.%d", network: "172.18.0.0/24", any: "0.0.0.0/0", loopback: "127.0.0.1", bits: 32,
	}
	ipv6 = family{
		name: "IPv6", service: "fd00:10:96::", external: "2001:db8:51::", balancer: "2001:db8:113::", wire: "fd00:172:18::", pod: "fd00:10:244:%d::%d",
		many: "2001:db8:245::%x:%x", network: "fd00:172:18::/64", any: "::/0", loopback: "::1", bits: 128,
	}
)

func (f family) host(name string) (string, error) {
	switch name {
	case "node-a":
		return f.wire + "2", nil
	case "node-b":
		return f.wire + "3", nil
	case "client":
		return f.wire + "9", nil
	case "client2":
		return f.wire + "10", nil
	}
	var letter rune
	var n int
	if _, err := fmt.Sscanf(name, "pod-%c%d", &letter, &n); err != nil || letter < 'a' || letter > 'b' {
		return "", fmt.Errorf("unknown host %q", name)
	}
	return fmt.Sprintf(f.pod, letter-'a'+1, 10+n), nil
}

// endpoint returns one element of an EndpointSlice's endpoints. Options: unready, terminating, serving-terminating, unset (no conditions), zone=Z,
// hint=Z (forZones), hintnode=N (forNodes), node=N (overrides nodeName; node= omits it).
func (f family) endpoint(host string, options ...string) (string, error) {
	ip, err := f.host(host)
	if err != nil {
		return "", err
	}
	e := endpoint{ip: ip, node: host, conditions: "ready: true, serving: true, terminating: false"}
	if strings.HasPrefix(host, "pod-") {
		e.node = "node-" + host[4:5]
	}
	for _, o := range options {
		if err := e.set(o); err != nil {
			return "", err
		}
	}
	return e.String(), nil
}

type endpoint struct {
	ip, node, conditions, zone string
	hints                      []string
}

// conditions returns the option words for the states of an endpoint, with the conditions of each.
func conditions() map[string]string {
	return map[string]string{
		"unready":             "ready: false, serving: false, terminating: false",
		"terminating":         "ready: false, serving: false, terminating: true",
		"serving-terminating": "ready: false, serving: true, terminating: true",
		"ready-terminating":   "ready: true, serving: true, terminating: true", // with publishNotReadyAddresses
		"unset":               "",
	}
}

func (e *endpoint) set(option string) error {
	if c, ok := conditions()[option]; ok {
		e.conditions = c
		return nil
	}
	key, value, _ := strings.Cut(option, "=")
	switch key {
	case "zone":
		e.zone = value
	case "hint":
		e.hints = append(e.hints, fmt.Sprintf("forZones: [{name: %s}]", value))
	case "hintnode":
		e.hints = append(e.hints, fmt.Sprintf("forNodes: [{name: %s}]", value))
	case "node":
		e.node = value
	default:
		return fmt.Errorf("unknown endpoint option %q", option)
	}
	return nil
}

func (e *endpoint) String() string {
	out := fmt.Sprintf("{addresses: [%q], conditions: {%s}", e.ip, e.conditions)
	if e.zone != "" {
		out += ", zone: " + e.zone
	}
	if e.node != "" {
		out += ", nodeName: " + e.node
	}
	if len(e.hints) > 0 {
		out += ", hints: {" + strings.Join(e.hints, ", ") + "}"
	}
	return out + "}"
}

// cluster returns the address lines of a Service's spec, indented by two.
func cluster(n int, fams ...family) string {
	var ips, names []string
	for _, f := range fams {
		ips = append(ips, fmt.Sprintf("%q", fmt.Sprint(f.service, n)))
		names = append(names, f.name)
	}
	policy := "SingleStack"
	if len(fams) > 1 {
		policy = "RequireDualStack"
	}
	return fmt.Sprintf("clusterIP: %s\n  clusterIPs: [%s]\n  ipFamilies: [%s]\n  ipFamilyPolicy: %s",
		ips[0], strings.Join(ips, ", "), strings.Join(names, ", "), policy)
}

func (v Variant) funcs() template.FuncMap {
	fam, other, fams := ipv4, ipv6, []family{ipv4}
	switch v.Family {
	case "ipv6":
		fam, other, fams = ipv6, ipv4, []family{ipv6}
	case "dual":
		fams = []family{ipv4, ipv6}
	}
	fm := template.FuncMap{
		"proto":   func() string { return v.Proto },
		"PROTO":   func() string { return strings.ToUpper(v.Proto) },
		"cluster": func(n int) string { return cluster(n, fams...) },
		"seq": func(n int) []int {
			out := make([]int, n)
			for i := range out {
				out[i] = i
			}
			return out
		},
	}
	for suffix, f := range map[string]family{"": fam, "4": ipv4, "6": ipv6, "Other": other} {
		for name, fn := range f.funcs() {
			fm[name+suffix] = fn
		}
	}
	return fm
}

// funcs returns the placeholders of one family.
func (f family) funcs() template.FuncMap {
	return template.FuncMap{
		"family":   func() string { return f.name },
		"vip":      func(n int) string { return fmt.Sprint(f.service, n) },
		"ext":      func(n int) string { return fmt.Sprint(f.external, n) },
		"lb":       func(n int) string { return fmt.Sprint(f.balancer, n) },
		"wire":     func() string { return f.network },
		"loopback": func() string { return f.loopback },
		"any":      func() string { return f.any },
		"ip":       f.host,
		"endpoint": f.endpoint,
		"many":     func(i, j int) string { return fmt.Sprintf(f.many, i*4+j/250+1, j%250+1) },
		"single": func(host string) (string, error) {
			ip, err := f.host(host)
			return fmt.Sprintf("%s/%d", ip, f.bits), err
		},
		"host": func(name string) (string, error) { // for URLs
			ip, err := f.host(name)
			if f.bits == 128 {
				ip = "[" + ip + "]"
			}
			return ip, err
		},
	}
}

func (v Variant) expand(name, text string) (string, error) {
	t, err := template.New(name).Funcs(v.funcs()).Parse(text)
	if err != nil {
		return "", fmt.Errorf("expand %s of %s: %w", name, v.Name(), err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, nil); err != nil {
		return "", fmt.Errorf("expand %s of %s: %w", name, v.Name(), err)
	}
	return out.String(), nil
}

// file returns one manifest of the scenario, expanded.
func (v Variant) file(name string) (File, error) {
	for _, f := range v.Scenario.files {
		if f.Name == name {
			data, err := v.expand(name, string(f.Data))
			return File{Name: name, Data: data}, err
		}
	}
	return File{}, fmt.Errorf("find file %s: scenario %s has none of that name", name, v.Scenario.Name)
}

// files reads the arguments of apply: `FILE...`, or `FILE as NAME` to replace what was applied under that name.
func (v Variant) files(args []string) ([]File, error) {
	if len(args) == 3 && args[1] == "as" {
		f, err := v.file(args[0])
		f.Name = args[2]
		return []File{f}, err
	}
	var out []File
	for _, name := range args {
		f, err := v.file(name)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}
