package cli

import (
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/internal/inspect"
)

// TestVisible: text that another program wrote into an object can neither control
// the reader's terminal nor add a line.
func TestVisible(t *testing.T) {
	type answer struct {
		Zone  string            `json:"zone"`
		Nodes []string          `json:"nodes"`
		Notes map[string]string `json:"notes"`
		Big   uint64            `json:"big"`
	}
	body, err := json.Marshal(answer{
		Zone: "a\x1b]0;x\a\nwell\r\u009b2J\x7f", Nodes: []string{"n\x00", "Zürich 1 <b> \\ ' \""},
		Notes: map[string]string{"k\x1b": "\u202egnp"}, Big: 1<<64 - 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	var got answer
	if err := readVisible(body, &got); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{got.Zone, `a\x1b]0;x\a\nwell\r\u009b2J\x7f`},
		{got.Nodes[0], `n\x00`},
		{got.Nodes[1], `Zürich 1 <b> \ ' "`},
		{got.Notes[`k\x1b`], `\u202egnp`},
		{inspect.Visible("\xff"), "\ufffd"}, // no UTF-8
	} {
		if c[0] != c[1] {
			t.Errorf("got %q, want %q", c[0], c[1])
		}
	}
	if got.Big != 1<<64-1 {
		t.Errorf("a number became %d", got.Big)
	}
	if err := readVisible([]byte("{"), &got); err == nil {
		t.Error("half an answer is taken")
	}
}
