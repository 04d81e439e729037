package cli

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
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
		return visible(x)
	case []any:
		for i := range x {
			x[i] = visibleTree(x[i])
		}
	case map[string]any:
		out := make(map[string]any, len(x))
		for k := range x {
			out[visible(k)] = visibleTree(x[k])
		}
		return out
	}
	return tree
}

// visible gives s with what cannot be printed as in a Go string.
func visible(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		if unprintable(r) {
			out.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}
