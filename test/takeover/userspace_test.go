package takeover_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// TestUserspaceNamesWhatIsLeft checks that userspace mode removes no rules of other programs, but names the owners of conflicting rules and the
// command that removes them.
func TestUserspaceNamesWhatIsLeft(t *testing.T) {
	bin, lab := binary(t), newLab(t)
	files := []kit.File{{Name: "web.yaml", Data: takeover.Manifests}}
	agent := start(t, bin, kit.Setup{Lab: lab, Mode: "nftables", Files: files})
	if err := agent.Halt(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent = start(t, bin, kit.Setup{Lab: lab, Mode: "userspace", Files: files})
	takeover.Eventually(t, "a line about the table", func() error {
		for line := range strings.Lines(agent.Log()) {
			if strings.Contains(line, "table ip fairlead in nftables") && strings.Contains(line, "level=WARN") && strings.Contains(line, `command="fairlead cleanup"`) {
				return nil
			}
		}
		return errors.New(agent.Log())
	})
}
