package cli

import (
	"bytes"
	"encoding/json"

	"github.com/fairlead/fairlead/internal/inspect"
)

// readVisible reads an answer for a terminal: what cannot be printed stands there as
// an escape sequence. Some texts come from whoever writes EndpointSlices, such as a
// zone, and a terminal obeys control characters.
func readVisible(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // 64 bits stay as they are
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
