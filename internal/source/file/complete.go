package file

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// origin returns the name of the folder in Problems.
func (f *folder) origin() string { return "folder " + f.dir }

// complete reports whether the content of every file is known. Then an object that
// no file defines does not exist.
func (f *folder) complete() bool {
	return f.scanned && len(f.unread()) == 0 && (f.empty || len(f.catalog.entries) > 0)
}

// listed reports whether at least one object is known, so that a partial state can be
// delivered.
func (f *folder) listed() bool { return f.scanned && f.lost == "" && len(f.catalog.entries) > 0 }

// unread returns the sorted names of the files of which some part could not be read
// yet.
func (f *folder) unread() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		if !f.files[name].sure {
			names = append(names, name)
		}
	}
	return names
}

// troubles returns the Problems of the folder as a whole.
func (f *folder) troubles() []model.Problem {
	say := func(well, format string, args ...any) []model.Problem {
		return []model.Problem{{Kind: model.Unavailable, Object: f.origin(), Reason: fmt.Sprintf(format, args...), Well: well}}
	}
	inPart := func(format string, args ...any) []model.Problem {
		return []model.Problem{{Object: f.origin(), Well: "every manifest has been read", Reason: fmt.Sprintf(format, args...)}}
	}
	const (
		leftovers = "what an earlier run left in the kernel stays"
		others    = "all other files are used, and objects of an earlier run in the kernel that they do not name stay"
	)
	switch unread := f.unread(); {
	case f.lost != "":
		return say("the folder of manifests can be read again",
			"the folder of manifests %s cannot be read: %s: the objects that were read before, or left by an earlier run, stay", f.dir, f.lost)
	case !f.scanned || f.settled:
	case len(f.catalog.entries) == 0 && len(unread) == 0 && !f.empty:
		return say("the folder of manifests holds manifests now",
			"the folder of manifests %s holds no Service, EndpointSlice or Node: %s (--manifests-empty=delete removes it)", f.dir, leftovers)
	case len(unread) > 0 && len(f.catalog.entries) == 0:
		return say("every manifest has been read", "no file of %s could be read: %s until one is: %s", f.dir, leftovers, strings.Join(unread, ", "))
	case slices.ContainsFunc(unread, func(name string) bool { return len(f.files[name].problems) > 0 }):
		return inPart("not every file could be read: %s until these are: %s", others, strings.Join(unread, ", "))
	case slices.ContainsFunc(unread, func(name string) bool { return f.files[name].writing }):
		return inPart("some files are being written: %s until these are closed, or have not changed for %v: %s", others, openPatience, strings.Join(unread, ", "))
	}
	return f.stranger()
}

// stranger returns a Problem if the folder defines Nodes and none of them is the
// agent's own.
func (f *folder) stranger() []model.Problem {
	var others []string
	for k := range f.catalog.entries {
		switch {
		case k.kind != nodeKind:
		case k.name == f.node:
			return nil
		default:
			others = append(others, k.name)
		}
	}
	if len(others) == 0 || f.node == "" {
		return nil
	}
	slices.Sort(others)
	if len(others) > 3 {
		others = append(others[:3], "...")
	}
	return []model.Problem{{Object: f.origin(), Reason: fmt.Sprintf("holds no Node %s, the name of this node (--hostname-override): "+
		"it holds %s; without it the zone and the addresses of this node are unknown, and --nodeport-addresses=primary opens no NodePort", f.node, strings.Join(others, ", "))}}
}
