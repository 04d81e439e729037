package config

import (
	"slices"

	"github.com/spf13/pflag"
)

// FlagGroup is a group of flags in the help text.
type FlagGroup struct {
	Title string
	Flags *pflag.FlagSet
}

// Groups divides all flags of fs into three groups: those of Fairlead, those of
// kube-proxy, and those without effect.
func Groups(fs *pflag.FlagSet) []FlagGroup {
	groups := []FlagGroup{{Title: "Flags of Fairlead"}, {Title: "Flags of kube-proxy"}, {Title: "Accepted without effect"}}
	for i := range groups {
		groups[i].Flags = pflag.NewFlagSet(groups[i].Title, pflag.ContinueOnError)
	}
	own := append(ownNames(), "help", "init-only", "cleanup")
	fs.VisitAll(func(f *pflag.Flag) {
		group := 1
		switch {
		case slices.Contains(own, f.Name):
			group = 0
		case slices.Contains(neverActing(), f.Name):
			group = 2
		}
		groups[group].Flags.AddFlag(f)
	})
	return groups
}
