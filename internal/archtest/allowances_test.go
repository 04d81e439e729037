package archtest

// Everything that is allowed against a rule, each with the reason. An entry that
// nothing needs any more fails the tests.

func mayExec() map[string]string {
	return map[string]string{
		"internal/kernel/iptables":  "the programs are iptables' only stable interface; other modes run nothing",
		"internal/kernel/netnstest": "runs a test binary again in a new namespace; no product code imports it",
	}
}

func mayBeLong() map[string]string {
	return map[string]string{}
}

func mayBeComplex() map[string]string {
	return map[string]string{
		"internal/model.Service.Equal": "one chain of equalities, a field each: nothing branches",
	}
}

func mayHaveManyParams() map[string]string { return map[string]string{} }

func mayHaveManyMethods() map[string]string {
	return map[string]string{
		"internal/dataplane.Driver": "the one contract of a data plane; its parts have no use apart",
	}
}

func mayBeVariables() map[string]string {
	return map[string]string{
		"internal/dataplane/nftables.setDefs": "compiled table; its rows are addressed to be read, not copied",
		"cmd/fairlead.version":                "set by the linker (-X)",
		"internal/dataplane.seed":             "what makes digests this process's own; set once, at the start",
	}
}
