package convert

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// annotationPrefix is the prefix of all annotations by which a Service requests a
// feature beyond the Kubernetes contract.
const annotationPrefix = "fairlead.dev/"

const (
	maxPark  = 4 * time.Second // below the 5 s after which resolvers retry
	maxGrace = 24 * time.Hour  // a longer time is better expressed as "never"
)

// extras reads the fairlead.dev annotations. An annotation with a bad value has no
// effect. A bad item of a list does not affect the other items.
func extras(annotations map[string]string, r *report) model.Extras {
	var e model.Extras
	var ours []string
	for key := range maps.Keys(annotations) {
		if strings.HasPrefix(key, annotationPrefix) {
			ours = append(ours, key)
		}
	}
	slices.Sort(ours) // Problems must not depend on the order of a map
	for _, key := range ours {
		value, field := strings.TrimSpace(annotations[key]), "metadata.annotations["+key+"]"
		switch strings.TrimPrefix(key, annotationPrefix) {
		case "weights":
			e.Weights = keep(value, field, checkWeight, r)
		case "consistent-hash":
			e.ConsistentHash = only("client-ip", value, field, r)
		case "port-range":
			e.PortRange = keep(value, field, checkPortRange, r)
		case "nodeport-source-ranges":
			e.NodePortRanges = sourceRanges(value, field, r)
		case "dns-park":
			e.DNSPark = park(value, field, r)
		case "ipvs-scheduler":
			e.IPVSScheduler = scheduler(value, field, r)
		case "offload":
			e.Offload = offload(value, field, r)
		case "proxy-protocol":
			e.Relay.ProxyProtocol = only("v2", value, field, r)
		case "source-address":
			e.Relay.KeepSource = only("client", value, field, r)
		case "endpoint-grace":
			e.Relay.EndpointGrace = grace(value, field, r)
		case "max-connections":
			e.Relay.MaxConnections = count(value, field, r)
		default:
			r.add(field, "unknown annotation: ignored")
		}
	}
	return e
}

// only reports whether a value is the only valid one. It adds a Problem if it is
// not.
func only(known, value, field string, r *report) bool {
	if value != known {
		r.add(field, "%q is unknown: the only value is %s", value, known)
	}
	return value == known
}

// keep returns the items of a comma-separated list that pass check, joined again.
func keep(value, field string, check func(string) string, r *report) string {
	var good []string
	for _, item := range strings.Split(value, ",") {
		item = strings.TrimSpace(item)
		if complaint := check(item); complaint != "" {
			r.add(field, "%q: %s", item, complaint)
			continue
		}
		good = append(good, item)
	}
	return strings.Join(good, ",")
}

// checkWeight checks an item such as "10.0.0.1=3" or "web-0=3". It returns what is
// wrong with it, "" if nothing is.
func checkWeight(item string) string {
	name, value, ok := strings.Cut(item, "=")
	if !ok || name == "" || strings.TrimSpace(name) != name {
		return "must read address=weight or hostname=weight"
	}
	w, err := strconv.ParseUint(value, 10, 16)
	if err != nil || w > model.MaxWeight {
		return "the weight must be a number in 0.." + strconv.Itoa(model.MaxWeight)
	}
	return ""
}

// checkPortRange checks a range such as "8000-8999" or, for a Service of several
// ports, "name=8000-8999". It returns what is wrong with it, "" if nothing is.
func checkPortRange(item string) string {
	if name, ports, named := strings.Cut(item, "="); named {
		if name == "" {
			return "the name of the port before = is missing"
		}
		item = ports
	}
	first, last, ok := strings.Cut(item, "-")
	lo, errLo := strconv.ParseUint(first, 10, 16)
	hi, errHi := strconv.ParseUint(last, 10, 16)
	if !ok || cmp.Or(errLo, errHi) != nil || lo == 0 {
		return "must read first-last, or portname=first-last, with ports in 1..65535"
	}
	if lo > hi {
		return "the first port is above the last"
	}
	return ""
}

// scheduler returns the name of an IPVS scheduler. Only the kernel knows which schedulers exist: a missing one is
// reported when the Service is written to the kernel.
func scheduler(value, field string, r *report) string {
	const longest = 15 // IP_VS_SCHEDNAME_MAXLEN is 16 and includes the terminating zero
	if value == "" || len(value) > longest || strings.Trim(value, "abcdefghijklmnopqrstuvwxyz") != "" {
		r.add(field, "%q is not the name of an IPVS scheduler: names have up to %d lower case letters", value, longest)
		return ""
	}
	return value
}

func sourceRanges(value, field string, r *report) []netip.Prefix {
	return guards(field, strings.Split(value, ","), r)
}

// offload parses "off" or the number of packets after which connections are
// accelerated.
func offload(value, field string, r *report) int {
	if value == "off" {
		return -1
	}
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil || n == 0 {
		r.add(field, "%q is neither off nor a number of packets from 1 on", value)
		return 0
	}
	return int(n)
}

// grace parses "never", or how long connections to a removed endpoint continue.
func grace(value, field string, r *report) time.Duration {
	if value == "never" {
		return -1
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < time.Second || d > maxGrace {
		r.add(field, "%q is neither never nor a duration in 1s..%s", value, maxGrace)
		return 0
	}
	return d
}

// count parses a number of connections.
func count(value, field string, r *report) int {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil || n == 0 {
		r.add(field, "%q is not a number of connections from 1 on", value)
		return 0
	}
	return int(n)
}

func park(value, field string, r *report) *time.Duration {
	if value == "0" {
		return new(time.Duration)
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > maxPark {
		r.add(field, "%q is not a duration in 0..%s", value, maxPark)
		return nil
	}
	return &d
}
