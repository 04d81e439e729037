package spec

// Case is one query. Answers are "TYPE data", sorted. Names in them are written without
// the cluster domain's suffix if they have it.
type Case struct {
	Name   string // below cluster.local. unless it ends with a dot
	Type   string
	Rcode  string   // "" = NOERROR
	Answer []string // empty with NOERROR: NODATA
	// CoreDNS is the reply of CoreDNS 1.15.0 if it differs, and Why is the reason; Why ""
	// = the same.
	CoreDNS *Reply
	Why     string
}

// Reply is a response in short form.
type Reply struct {
	Rcode  string
	Answer []string
}

const nx = "NXDOMAIN"

// Cases returns the table.
func Cases() []Case { return append(present(), absent()...) }

// present returns queries about Services that exist, by section of the specification.
func present() []Case {
	return []Case{
		// 2.1, 2.2: the schema version
		{Name: "dns-version", Type: "TXT", Answer: []string{`TXT "1.1.0"`}},
		{Name: "dns-version", Type: "A", CoreDNS: &Reply{Rcode: nx},
			Why: "the name exists, so RFC 2308 says NODATA; CoreDNS looks at the type first"},
		// 2.3: Services with a cluster IP
		{Name: "web.default.svc", Type: "A", Answer: []string{"A 10.96.1.1"}},
		{Name: "web.default.svc", Type: "AAAA", Answer: []string{"AAAA fd00:10:96::1:1"}},
		{Name: "WeB.DEFAULT.svc", Type: "A", Answer: []string{"A 10.96.1.1"}},
		{Name: "v4only.default.svc", Type: "AAAA"}, // the name exists: NODATA
		{Name: "v4only.default.svc", Type: "TXT"},
		{Name: "_http._tcp.web.default.svc", Type: "SRV", Answer: []string{"SRV 80 web.default.svc"}},
		{Name: "_dns._udp.web.default.svc", Type: "SRV", Answer: []string{"SRV 53 web.default.svc"}},
		{Name: "_http._udp.web.default.svc", Type: "SRV", Rcode: nx},
		{Name: "_none._tcp.web.default.svc", Type: "SRV", Rcode: nx},
		{Name: "1.1.96.10.in-addr.arpa.", Type: "PTR", Answer: []string{"PTR web.default.svc"}},
		{Name: "1.0.0.0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa.", Type: "PTR", Answer: []string{"PTR web.default.svc"}},
		// 2.4: headless Services
		{Name: "flux.jobs.svc", Type: "A", Answer: []string{"A 10.244.1.11", "A 10.244.2.11", "A 10.244.2.13"}},
		{Name: "flux.jobs.svc", Type: "AAAA", Answer: []string{"AAAA fd00:10:244:1::11"}},
		{Name: "flux-0.flux.jobs.svc", Type: "A", Answer: []string{"A 10.244.1.11"}},
		{Name: "flux-0.flux.jobs.svc", Type: "AAAA", Answer: []string{"AAAA fd00:10:244:1::11"}},
		{Name: "flux-1.flux.jobs.svc", Type: "AAAA"},
		{Name: "flux-2.flux.jobs.svc", Type: "A", Rcode: nx}, // not ready
		{Name: "flux-9.flux.jobs.svc", Type: "A", Rcode: nx},
		{Name: "10-244-2-13.flux.jobs.svc", Type: "A", Answer: []string{"A 10.244.2.13"}},
		{Name: "_broker._tcp.flux.jobs.svc", Type: "SRV", Answer: []string{
			"SRV 8050 10-244-2-13.flux.jobs.svc", "SRV 8050 flux-0.flux.jobs.svc", "SRV 8050 flux-1.flux.jobs.svc"}},
		{Name: "11.1.244.10.in-addr.arpa.", Type: "PTR", Answer: []string{"PTR flux-0.flux.jobs.svc"}},
		{Name: "12.2.244.10.in-addr.arpa.", Type: "PTR", Rcode: "REFUSED", CoreDNS: &Reply{Rcode: nx},
			Why: "not a name of the cluster: both pass it on; the table's servers have nobody to pass it on to"},
		{Name: "noports.jobs.svc", Type: "A", Answer: []string{"A 10.244.1.21"}},
		{Name: "alone.noports.jobs.svc", Type: "A", Answer: []string{"A 10.244.1.21"}},
		{Name: "empty.jobs.svc", Type: "A", Rcode: nx}, // no endpoint
		{Name: "empty.jobs.svc", Type: "AAAA", Rcode: nx},
		{Name: "waiting.jobs.svc", Type: "A", Rcode: nx}, // no ready endpoint
		{Name: "waiting-0.waiting.jobs.svc", Type: "A", Rcode: nx},
		{Name: "_x._tcp.waiting.jobs.svc", Type: "SRV", Rcode: nx},
		// 2.5: ExternalName
		{Name: "alias.default.svc", Type: "CNAME", Answer: []string{"CNAME db.example.org."},
			CoreDNS: &Reply{Answer: []string{"CNAME Db.Example.org."}}, Why: "names have no case; we keep one spelling"},
		{Name: "inward.default.svc", Type: "A", Answer: []string{"A 10.96.1.1", "CNAME web.default.svc"}},
		{Name: "below.alias.default.svc", Type: "A", Rcode: nx},
	}
}

// absent returns queries about the zone itself and about names that do not exist.
func absent() []Case {
	return []Case{
		// the zone itself, and names that have only others below them (RFC 8020)
		{Name: "cluster.local.", Type: "SOA", Answer: []string{"SOA"}},
		{Name: "cluster.local.", Type: "NS", Answer: []string{"NS ns.dns"},
			CoreDNS: &Reply{}, Why: "CoreDNS names the Service that it finds itself behind; here it is behind none"},
		{Name: "cluster.local.", Type: "A"},
		{Name: "svc", Type: "A"},
		{Name: "jobs.svc", Type: "A"},
		{Name: "_tcp.flux.jobs.svc", Type: "SRV", CoreDNS: &Reply{Rcode: nx},
			Why: "an empty non-terminal (RFC 8020): with NXDOMAIN a resolver may deny the SRV names below it"},
		// names that do not exist
		{Name: "nothing.default.svc", Type: "A", Rcode: nx},
		{Name: "web.nowhere.svc", Type: "A", Rcode: nx},
		{Name: "nowhere.svc", Type: "A", Rcode: nx},
		{Name: "a.b.c.flux.jobs.svc", Type: "A", Rcode: nx},
		{Name: "web", Type: "A", Rcode: nx},
		// outside names with a search path appended (ndots:5)
		{Name: "example.org.default.svc", Type: "A", Rcode: nx},
		{Name: "example.org.svc", Type: "A", Rcode: nx},
	}
}
