package config

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// gateTable lists every gate that kube-proxy 1.36.3 accepts, as
// "name stage on|off locked|free".
//
//go:embed gates-1.36.txt
var gateTable string

type gate struct {
	stage  string
	on     bool
	locked bool
}

// knownGates returns the gates of gateTable, and Fairlead's offload gate, which no
// release of Kubernetes has yet.
func knownGates() map[string]gate {
	gates := map[string]gate{}
	for line := range strings.Lines(gateTable) {
		f := strings.Fields(line)
		gates[f[0]] = gate{stage: f[1], on: f[2] == "on", locked: f[3] == "locked"}
	}
	gates[offloadGate] = gate{stage: "ALPHA"} // of a KEP that no release has yet
	return gates
}

// resolveGates returns the value of every known gate. bad and unknown are the
// errors in the requested gates, in the order of their names. A gate of another
// release is only a warning: a node must not lose its proxy because of a name.
func resolveGates(asked map[string]bool) (values map[string]bool, bad, unknown []string) {
	known := knownGates()
	values = make(map[string]bool, len(known))
	for name, g := range known {
		values[name] = g.on
		group := map[string]string{"ALPHA": "AllAlpha", "BETA": "AllBeta"}[g.stage]
		if all, ok := asked[group]; ok && !g.locked {
			values[name] = all
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		g, ok := known[name]
		switch {
		case !ok:
			unknown = append(unknown, name)
		case g.locked && asked[name] != g.on:
			bad = append(bad, fmt.Sprintf("%s: locked to %t", name, g.on))
		default:
			values[name] = asked[name]
		}
	}
	return values, bad, unknown
}
