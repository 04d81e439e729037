package kit

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"
)

// base gives every placeholder its meaning for one family. Addresses follow the lab's plan.
type family struct {
	name, addressType string
	service           string // prefix before the number of a ClusterIP
	external          string // externalIPs: routed to node-a by the clients, on no interface
	balancer          string // load balancer VIPs: the same
	wire, pod         string
	bits              int
}

var (
	ipv4 = family{"IPv4", "IPv4", "10.96.0.", "198.51.100.", "203.0.113.", "172.18.0.", "10.244.%d.%d", 32}
	ipv6 = family{"IPv6", "IPv6", "fd00:10:96::", "2001:db8:51::", "2001:db8:113::", "fd00:172:18::", "fd00:10:244:%d::%d", 128}
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

// endpoint writes one element of an EndpointSlice's endpoints. Options: unready, terminating, serving-terminating, unset (no conditions),
// zone=Z, hint=Z (forZones), hintnode=N (forNodes), node=N (overrides nodeName; node= leaves it out).
func (f family) endpoint(host string, options ...string) (string, error) {
	ip, err := f.host(host)
	if err != nil {
		return "", err
	}
	node := host
	if strings.HasPrefix(host, "pod-") {
		node = "node-" + host[4:5]
	}
	conditions, zone, hints := "{ready: true, serving: true, terminating: false}", "", ""
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "unready":
			conditions = "{ready: false, serving: false, terminating: false}"
		case "terminating":
			conditions = "{ready: false, serving: false, terminating: true}"
		case "serving-terminating":
			conditions = "{ready: false, serving: true, terminating: true}"
		case "ready-terminating": // what publishNotReadyAddresses looks like on a terminating pod
			conditions = "{ready: true, serving: true, terminating: true}"
		case "unset":
			conditions = "{}"
		case "zone":
			zone = ", zone: " + value
		case "hint":
			hints += fmt.Sprintf("forZones: [{name: %s}]", value)
		case "hintnode":
			if hints != "" {
				hints += ", "
			}
			hints += fmt.Sprintf("forNodes: [{name: %s}]", value)
		case "node":
			node = value
		default:
			return "", fmt.Errorf("unknown endpoint option %q", o)
		}
	}
	out := fmt.Sprintf("{addresses: [%q], conditions: %s%s", ip, conditions, zone)
	if node != "" {
		out += ", nodeName: " + node
	}
	if hints != "" {
		out += ", hints: {" + hints + "}"
	}
	return out + "}", nil
}

// cluster writes the address lines of a Service's spec, indented by two.
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
		"hex": func(n int) string { return fmt.Sprintf("%x", n) },
	}
	for suffix, f := range map[string]family{"": fam, "4": ipv4, "6": ipv6, "Other": other} {
		fm["family"+suffix] = func() string { return f.name }
		fm["vip"+suffix] = func(n int) string { return fmt.Sprint(f.service, n) }
		fm["ext"+suffix] = func(n int) string { return fmt.Sprint(f.external, n) }
		fm["lb"+suffix] = func(n int) string { return fmt.Sprint(f.balancer, n) }
		fm["ip"+suffix] = f.host
		fm["endpoint"+suffix] = f.endpoint
		fm["host"+suffix] = func(name string) (string, error) { // for URLs
			ip, err := f.host(name)
			if f.bits == 128 {
				ip = "[" + ip + "]"
			}
			return ip, err
		}
		fm["many"+suffix] = func(i, j int) string { // thousands of addresses; a scenario has to route them
			if f.bits == 32 {
				return fmt.Sprintf("10.245.%d.%d", i*4+j/250, j%250+1)
			}
			return fmt.Sprintf("2001:db8:245::%d:%d", i+1, j+1)
		}
		fm["single"+suffix] = func(host string) (string, error) {
			ip, err := f.host(host)
			return fmt.Sprintf("%s/%d", ip, f.bits), err
		}
		fm["loopback"+suffix] = func() string {
			if f.bits == 32 {
				return "127.0.0.1"
			}
			return "::1"
		}
		fm["wire"+suffix] = func() string {
			if f.bits == 32 {
				return f.wire + "0/24"
			}
			return f.wire + "/64"
		}
		fm["any"+suffix] = func() string {
			if f.bits == 32 {
				return "0.0.0.0/0"
			}
			return "::/0"
		}
	}
	return fm
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
