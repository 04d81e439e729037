package offload

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// TestDriftIsSeenInSingleObjects: Compare reports drift of the objects that accelerate a Service, caused by another program.
func TestDriftIsSeenInSingleObjects(t *testing.T) {
	onBoth(t, func(w *world) {
		own := with(plain(2), func(f *model.Frontend) { f.Offload = 4 })
		d := w.driver(nil)
		b := w.bed(d)
		look := func(step string, want ...string) {
			w.Helper()
			var objects []dataplane.Object
			for k, v := range b.Track.Wanted() {
				objects = append(objects, dataplane.Object{Key: k, Value: v})
			}
			var got []string
			if err := d.Compare(w.Context(), objects, func(k dataplane.Key, _ string) { got = append(got, d.KeyString(k)) }); err != nil {
				w.Fatal(err)
			}
			slices.Sort(got)
			if len(got) != len(want) || !slices.EqualFunc(got, want, strings.HasPrefix) {
				w.Errorf("%s: differ %q, want %q", step, got, want)
			}
		}
		b.Load(w)
		b.Base()
		b.Want(dataplanetest.Service(1), plain(1))
		b.Want(dataplanetest.Service(2), own)
		b.Sync(w)
		look("as written")
		edit := func(do func(*nft.Batch)) {
			w.Helper()
			var batch nft.Batch
			do(&batch)
			if _, err := w.other.Commit(w.Context(), &batch); err != nil {
				w.Fatal(err)
			}
		}
		table := tableRef(model.IPv4)
		edit(func(b *nft.Batch) { b.FlushSet(table.Set(named(services, "4"))) })
		look("an element less", "element ip fairlead-offload services-4 ")
		edit(func(b *nft.Batch) { b.FlushChain(table.Chain(chainName)) })
		look("no rules", "element ", "rules ip fairlead-offload 4", "rules ip fairlead-offload default")
		edit(func(b *nft.Batch) { b.DelTable(table) })
		look("no table", "chain ip ", "chain ip ", "chain ip ", "chain ip ", "element ip ", "element ip ", "element ip ", "element ip ", "rules ip ", "rules ip ", "rules ip ", "set ip ", "set ip ", "set ip ", "set ip ", "set ip ", "set ip ", "table ip ")
		d.s.fail("write", dataplane.ErrConflict)
		look("a write failed, which status tells")
	})
}
