package config

import (
	_ "embed"
	"fmt"
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

func knownGates() map[string]gate {
	gates := map[string]gate{}
	for line := range strings.Lines(gateTable) {
		f := strings.Fields(line)
		gates[f[0]] = gate{stage: f[1], on: f[2] == "on", locked: f[3] == "locked"}
	}
	return gates
}

// resolveGates gives every known gate its value, or says what is wrong with
// each of asked, in the order of their names.
func resolveGates(asked map[string]bool) (map[string]bool, []string) {
	known := knownGates()
	values := make(map[string]bool, len(known))
	for name, g := range known {
		values[name] = g.on
		group := map[string]string{"ALPHA": "AllAlpha", "BETA": "AllBeta"}[g.stage]
		if all, ok := asked[group]; ok && !g.locked {
			values[name] = all
		}
	}
	var bad []string
	for name, on := range asked {
		g, ok := known[name]
		switch {
		case !ok:
			bad = append(bad, fmt.Sprintf("%s: unknown feature gate of Kubernetes 1.36", name))
		case g.locked && on != g.on:
			bad = append(bad, fmt.Sprintf("%s: locked to %t", name, g.on))
		default:
			values[name] = on
		}
	}
	slices.Sort(bad)
	return values, bad
}
