package kit

import (
	"context"

	"github.com/fairlead/fairlead/test/netlab"
)

// File is a manifest with a name. Applying the same name again replaces the earlier content.
type File struct{ Name, Data string }

// Setup is the input of a subject's start. Files exist before the first start.
type Setup struct {
	Lab   *netlab.Lab
	Mode  string
	Flags []string
	Files []File
}

// Subject is the program under test, one per lab. The kit calls it from one goroutine; Log may be called concurrently.
type Subject interface {
	// Name is the word used in `not NAME:` headers.
	Name() string
	// Start prepares a new setup, starts the agent and returns when it is in sync.
	Start(ctx context.Context, s Setup) error
	// Restart stops the agent (with SIGKILL if kill) and starts it again with the same setup.
	Restart(ctx context.Context, kill bool) error
	// Halt stops the agent gracefully and leaves its rules; Resume starts it again.
	Halt(ctx context.Context) error
	Resume(ctx context.Context) error
	// Apply writes manifests, Delete removes them. Both return when the kernel is in sync.
	Apply(ctx context.Context, files []File) error
	Delete(ctx context.Context, names []string) error
	// Cleanup removes every trace of the agent from the node, as its own cleanup command does. The agent is not running then.
	Cleanup(ctx context.Context) error
	// Stop ends the scenario: the agent has exited and the node is clean. It is also called after a failure.
	Stop(ctx context.Context) error
	// Log returns the agent's output since Start.
	Log() string
}

// Settler is a Subject that keeps state in the lab from its first scenario to its last, such as an API server.
type Settler interface {
	Settle(ctx context.Context, lab *netlab.Lab) error
	Leave()
}

// NotApplicable is the error of a Subject if a scenario proves not to be applicable to it. The text is the reason.
type NotApplicable string

// Error implements error.
func (n NotApplicable) Error() string { return string(n) }
