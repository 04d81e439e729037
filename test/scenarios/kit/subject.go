package kit

import (
	"context"

	"github.com/fairlead/fairlead/test/netlab"
)

// File is a manifest with a name. Applying the same name again replaces the earlier content.
type File struct{ Name, Data string }

// Setup is what a subject is started with. Files are there before the first start.
type Setup struct {
	Lab   *netlab.Lab
	Mode  string
	Flags []string
	Files []File
}

// Subject is the thing under test, one per lab. The kit calls it from one goroutine; Log may be called from several.
type Subject interface {
	// Name is the word used in `not NAME:` headers.
	Name() string
	// Start takes up a fresh setup, starts the agent and returns when it is in sync.
	Start(ctx context.Context, s Setup) error
	// Restart ends the agent (SIGKILL if kill) and starts it again with the same setup.
	Restart(ctx context.Context, kill bool) error
	// Halt ends the agent in good order and leaves its rules; Resume starts it again.
	Halt(ctx context.Context) error
	Resume(ctx context.Context) error
	// Apply writes manifests, Delete takes them away. Both return when the kernel shows it.
	Apply(ctx context.Context, files []File) error
	Delete(ctx context.Context, names []string) error
	// Cleanup removes every trace of the agent from the node, as its own clean-up command does. The agent is not running then.
	Cleanup(ctx context.Context) error
	// Stop ends the scenario: agent gone, node clean. Called also after a failure.
	Stop(ctx context.Context) error
	// Log is everything the agent wrote since Start.
	Log() string
}

// Settler is a Subject that keeps something in the lab from its first scenario to its last, such as an API server.
type Settler interface {
	Settle(ctx context.Context, lab *netlab.Lab) error
	Leave()
}

// NotApplicable is the error of a Subject for which a scenario turns out to have no meaning. The text is the reason.
type NotApplicable string

// Error implements error.
func (n NotApplicable) Error() string { return string(n) }
