package nftsave

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// chain is one chain of a table.
type chain struct {
	name    string
	builtIn bool // it has a hook
}

// listing is a cache of the chains of all tables of a family. It is valid until the next
// write: the kernel lists all tables' chains, whichever table is requested.
type listing struct {
	generation uint32
	tables     map[string][]chain
}

// chains returns the chains of a family, by table.
func (r *Reader) chains(ctx context.Context, f xt.Family) (map[string][]chain, error) {
	d := r.dumpers[0]
	for range tries {
		if err := d.settle(ctx); err != nil {
			return nil, err
		}
		if known := r.listed[f]; known.tables != nil && known.generation == d.settled {
			return known.tables, nil
		}
		now := listing{d.settled, map[string][]chain{}}
		err := d.dump(ctx, question{kind: unix.NFT_MSG_GETCHAIN, flags: unix.NLM_F_DUMP, family: f}, func(attributes []byte) {
			if table, c, ok := oneChain(attributes); ok {
				now.tables[table] = append(now.tables[table], c)
			}
		})
		if err == nil {
			r.listed[f] = now
			return now.tables, nil
		}
		if !errors.Is(err, errInterrupted) {
			return nil, err
		}
	}
	return nil, errInterrupted
}

func oneChain(attributes []byte) (table string, c chain, ok bool) {
	a := netlink.Attrs{Rest: attributes}
	for a.Next() {
		switch a.Type {
		case unix.NFTA_CHAIN_TABLE:
			table = string(name(a.Data))
		case unix.NFTA_CHAIN_NAME:
			c.name = string(name(a.Data))
		case unix.NFTA_CHAIN_HOOK:
			c.builtIn = true
		}
	}
	// iptables makes no chain with a blank in its name, and lines with such a name would be ambiguous.
	return table, c, !a.Bad && c.name != "" && !strings.ContainsAny(c.name, " \n")
}

// generation returns the number of commits to nf_tables in the namespace.
func (d *dumper) generation(ctx context.Context) (generation uint32, err error) {
	err = d.ask(ctx, question{kind: unix.NFT_MSG_GETGEN}, func(m netlink.Message) bool {
		if m.Type == unix.NLMSG_ERROR {
			err = m.Errno()
			return true
		}
		generation = generationOf(m)
		return true
	})
	if err == nil && generation == 0 {
		err = errors.New("no generation in the reply")
	}
	return generation, err
}
