package cli

import (
	"bytes"
	"encoding/json"

	"github.com/fairlead/fairlead/internal/inspect"
)

// readVisible decodes an answer for a terminal. Characters that cannot be printed
// become escape sequences. Some texts are written by other programs, such as the
// zone in an EndpointSlice, and a terminal executes control characters.
func readVisible(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // keeps the precision of 64-bit numbers
	var tree any
	if err := d.Decode(&tree); err != nil {
		return err
	}
	body, err := json.Marshal(visibleTree(tree))
	if err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

func visibleTree(tree any) any {
	switch x := tree.(type) {
	case string:
		return inspect.Visible(x)
	case []any:
		for i := range x {
			x[i] = visibleTree(x[i])
		}
	case map[string]any:
		out := make(map[string]any, len(x))
		for k := range x {
			out[inspect.Visible(k)] = visibleTree(x[k])
		}
		return out
	}
	return tree
}
