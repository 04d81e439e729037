package nft

import (
	"bytes"
	"fmt"
	"testing"
)

// TestElement holds the kernel and the fake to the same words about one element.
func TestElement(t *testing.T) {
	for name, k := range map[string]Kernel{"kernel": ownNetns(t), "fake": NewFake()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, k, k)
			services := w.table.Set("services")
			w.must(func(b *Batch) {
				for i := range 300 {
					b.AddElement(services, service(fmt.Sprintf("10.96.%d.%d", i>>8, i&255), Goto("lb")))
				}
				w.add(b, 0, 3, "10.0.0.1")
			})
			find := k.(Finder)
			want := service("10.96.1.7", Goto("lb"))
			if e, found, err := find.Element(t.Context(), services, want); err != nil || !found || e.Verdict != Goto("lb") || !bytes.Equal(e.Key, want.Key) {
				t.Errorf("found %v %+v, %v", found, e, err)
			}
			slot := slotElement(3, "10.0.0.1")
			if e, found, err := find.Element(t.Context(), w.table.Set("eps"), slot); err != nil || !found || !bytes.Equal(e.Data, slot.Data) {
				t.Errorf("found %v %+v, %v", found, e, err)
			}
			for what, s := range map[string]SetRef{"element": services, "set": w.table.Set("none"), "table": {Table: spare, Name: "services"}} {
				if e, found, err := find.Element(t.Context(), s, service("10.99.0.1", Goto("lb"))); found || err != nil {
					t.Errorf("a missing %s: found %v %+v, %v", what, found, e, err)
				}
			}
			w.must(func(b *Batch) { b.DelElement(services, want) })
			if _, found, err := find.Element(t.Context(), services, want); found || err != nil {
				t.Errorf("after its deletion: found %v, %v", found, err)
			}
		})
	}
}
