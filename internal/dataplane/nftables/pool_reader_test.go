package nftables

import (
	"maps"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
)

// TestPoolReader: slots that come in any order make up the pools of their set, holes included, and nothing is left for the next.
func TestPoolReader(t *testing.T) {
	var p poolReader
	read := func(name string, add func()) map[string]string {
		p.begin(defNamed(name), model.IPv4)
		if add != nil {
			add()
		}
		got := map[string]string{}
		p.end(func(id, value string) {
			if _, twice := got[id]; twice {
				t.Errorf("%x comes twice", id)
			}
			got[id] = value
		})
		return got
	}
	slot := func(id string, n int, data string) { p.add([]byte(id), n, []byte(data)) }
	first := read("eps-3", func() {
		slot("addr1pt", 2, "aaaacc..") // the kernel pads what a slot holds
		slot("addr2pt", 0, "bbbbaa..")
		slot("addr1pt", 0, "aaaaaa..")
	})
	want := map[string]string{"addr1pt": "aaaaaa" + "\x00\x00\x00\x00\x00\x00" + "aaaacc", "addr2pt": "bbbbaa"}
	if !maps.Equal(first, want) {
		t.Errorf("%q, not %q", first, want)
	}
	if local := read("local-eps", func() { slot("addr2pt", 0, "cccccc..") }); !maps.Equal(local, map[string]string{"addr2pt": "cccccc"}) {
		t.Errorf("%q of the same Service", local)
	}
	ranges := read("range-eps", func() { slot("addr9", 1, "dddd"); slot("addr8", 0, "eeee") })
	if want := map[string]string{"addr9": "\x00\x00\x00\x00dddd", "addr8": "eeee"}; !maps.Equal(ranges, want) {
		t.Errorf("%q, not %q", ranges, want)
	}
	if ports := read("np-eps", func() { slot("prt", 0, "ffffff..") }); !maps.Equal(ports, map[string]string{"prt": "ffffff"}) {
		t.Errorf("%q", ports)
	}
	if none := read("eps-4", nil); len(none) > 0 {
		t.Errorf("%q from nothing", none)
	}
	if !maps.Equal(first, want) {
		t.Errorf("later readings changed %q", first)
	}
}
