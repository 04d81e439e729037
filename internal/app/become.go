package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A change of mode is a restart: the agent ends its tasks, and the process becomes the
// same program anew (execve), told the mode in this variable. So there is one way into a
// mode, whoever asked for it, and nothing of the old mode is left in memory.
const changeVariable = "FAIRLEAD_MODE_CHANGE"

// modeChange is what the process is told.
type modeChange struct {
	To   string    `json:"to"`
	From string    `json:"from"` // where to go back to if To does not work
	At   time.Time `json:"at"`
	// Failed is why From has To again: then there is no further way back.
	Failed string `json:"failed,omitempty"`
}

// Error lets a change end the agent's tasks.
func (c *modeChange) Error() string {
	return fmt.Sprintf("the mode changes from %s to %s", c.From, c.To)
}

// toldChange reads what this process was told; nil if nothing.
func toldChange() *modeChange {
	var c modeChange
	if err := json.Unmarshal([]byte(os.Getenv(changeVariable)), &c); err != nil || c.To == "" {
		return nil
	}
	return &c
}

// mode is the one to run in.
func (c *modeChange) mode() string {
	if c.Failed != "" {
		return c.From
	}
	return c.To
}

// underWay reports whether there is a way back that may still be needed.
func (c *modeChange) underWay() bool { return c != nil && c.Failed == "" }

// back is the change with the reason why it failed.
func (c *modeChange) back(err error) *modeChange {
	again := *c
	again.Failed = oneLine(err)
	return &again
}

// become replaces this process; it returns only if that fails. The running file is
// taken and not the one of its name, which an upgrade may have replaced meanwhile.
func (c *modeChange) become() error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, changeVariable+"=") })
	return fmt.Errorf("start again in another mode: %w", unix.Exec("/proc/self/exe", os.Args, append(env, changeVariable+"="+string(text))))
}

// keepName returns the process the name that it had: execve has called it "exe".
func keepName() { _ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0) }
