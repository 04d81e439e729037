package config

import (
	"slices"

	"github.com/spf13/pflag"
)

// FlagGroup is a part of the flags, for the help.
type FlagGroup struct {
	Title string
	Flags *pflag.FlagSet
}

// Groups divides the flags that Register has added, and any other that fs has, by
// whose they are.
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
