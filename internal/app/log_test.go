package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/config"
)

// No name or error text of others reaches a terminal as control characters, nor makes a second line, in any format.
func TestLogIsPrintable(t *testing.T) {
	const bad = "a\x1b[2J\u009b1m\x7f\u202e\nb"
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		newLoggerTo(&b, config.Logging{Format: format}).Warn(bad, "object", bad, "error", errors.New(bad), "count", 1)
		if line := b.String(); strings.ContainsAny(line, "\x1b\u009b\x7f\u202e") || strings.Count(line, "\n") != 1 {
			t.Errorf("%s: %q", format, line)
		}
		var got map[string]any
		if format == "json" && (json.Unmarshal(b.Bytes(), &got) != nil || got["object"] != bad) {
			t.Errorf("the object of %q is %q", b.String(), got["object"])
		}
	}
}
