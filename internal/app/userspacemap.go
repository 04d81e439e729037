package app

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/model"
)

// placeTable is the file of --userspace-map: where each Service is answered. The engine's
// goroutine owns it.
type placeTable struct {
	file  string
	plan  addressplan.Plan
	rows  map[model.FrontendKey]string
	stale bool // the file differs from rows
	wrote bool
}

// update applies the changes of a sync, and writes the file if anything changed.
func (p *placeTable) update(decided []model.Frontend, gone []model.FrontendKey) error {
	for _, k := range gone {
		if _, had := p.rows[k]; had {
			delete(p.rows, k)
			p.stale = true
		}
	}
	for i := range decided {
		f := &decided[i]
		if userspace.Unsupported(f) != "" {
			continue
		}
		// NodePorts on localhost are all that is said of NodePorts: the node's own
		// addresses are known.
		at := p.plan.Sockets(f, &model.NodeView{})[0]
		row := fmt.Sprintf("%s %s %s %s %s", f.Service, cmp.Or(f.Port, "-"), f.Kind, f.Key, at)
		if p.rows[f.Key] != row {
			p.rows[f.Key] = row
			p.stale = true
		}
	}
	if !p.stale && p.wrote {
		return nil
	}
	var text strings.Builder
	text.WriteString("# Service, port, kind, address in the cluster, address on this node\n")
	for _, row := range slices.Sorted(maps.Values(p.rows)) {
		text.WriteString(row + "\n")
	}
	next := p.file + ".new"
	if err := os.WriteFile(next, []byte(text.String()), 0o644); err != nil {
		return err
	}
	if err := os.Rename(next, p.file); err != nil {
		return err
	}
	p.stale, p.wrote = false, true
	return nil
}
