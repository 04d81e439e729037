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

// A change of mode is a restart: the agent ends its tasks, and the process executes the
// same program again (execve), with the mode in this variable. So there is one way into a
// mode, whatever the source of the request, and no state of the old mode stays in memory.
const changeVariable = "FAIRLEAD_MODE_CHANGE"

// modeChange is the change of mode that the process is started with.
type modeChange struct {
	To   string    `json:"to"`
	From string    `json:"from"` // where to go back to if To does not work
	At   time.Time `json:"at"`
	// Failed is why the process runs in From again: then there is no further way back.
	Failed string `json:"failed,omitempty"`
}

// Error makes a change an error, so that a task can end the agent with it.
func (c *modeChange) Error() string {
	return fmt.Sprintf("the mode changes from %s to %s", c.From, c.To)
}

// toldChange returns the change that this process was started with; nil if none.
func toldChange() *modeChange {
	var c modeChange
	if err := json.Unmarshal([]byte(os.Getenv(changeVariable)), &c); err != nil || c.To == "" {
		return nil
	}
	return &c
}

// mode returns the mode to run in.
func (c *modeChange) mode() string {
	if c.Failed != "" {
		return c.From
	}
	return c.To
}

// underWay reports whether there is a way back that may still be needed.
func (c *modeChange) underWay() bool { return c != nil && c.Failed == "" }

// back returns the change with the reason why it failed.
func (c *modeChange) back(err error) *modeChange {
	again := *c
	again.Failed = oneLine(err)
	return &again
}

// become replaces this process; it returns only if that fails. It executes the running file,
// not the file of that name, which an upgrade may have replaced since the start.
func (c *modeChange) become() error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, changeVariable+"=") })
	return fmt.Errorf("restart in another mode: %w", unix.Exec("/proc/self/exe", os.Args, append(env, changeVariable+"="+string(text))))
}

// keepName restores the process's name: execve has set it to "exe".
func keepName() { _ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0) }
