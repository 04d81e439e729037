package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/inspect"
)

// changeLimit is how long a change may take, including a rollback.
const changeLimit = 6 * time.Minute

func migrateCommand() *cobra.Command {
	q := question{path: "/migrate"}
	var to string
	var dry bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Change the mode of the agent of this node while it serves",
		Long: `migrate changes the mode of the agent that runs in this network namespace: nftables,
iptables-nft, iptables-legacy, ipvs, or what fairlead probe recommends (auto). The agent
writes the rules of the new mode first and compares them with the kernel; only then does
it remove the old ones. If the new mode cannot start, the old mode continues.

With --dry-run it only prints the steps and what cannot survive. The settings of the
agent are not changed: see the line Later.

` + codes,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("migrate takes no arguments and got %q", args[0])
			}
			if to == "" {
				return usage("migrate needs --to MODE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.query.Set("to", to)
			var m inspect.Migration
			if err := q.put(cmd.Context(), cmd.OutOrStdout(), &m); err != nil {
				return err
			}
			if m.Cannot != "" {
				return unwell("the mode is not changed: " + m.Cannot)
			}
			if dry {
				return nil
			}
			return change(cmd, &q)
		},
	}
	formats(cmd, &q)
	q.limit = 3 * time.Minute // modes are probed first
	cmd.Flags().StringVar(&to, "to", "", "the mode to change to")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only print the steps")
	return cmd
}

// change requests the change and waits until the agent reports its result.
func change(cmd *cobra.Command, q *question) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), changeLimit)
	defer cancel()
	before, err := current(ctx)
	if err != nil {
		return failed(err)
	}
	if _, err := control.Post(ctx, q.path+"?"+q.query.Encode()); err != nil {
		return failed(err)
	}
	w := changeWait{before: before.Since}
	for pause(ctx, changePause) == nil {
		now, err := current(ctx)
		switch done, problem := w.see(now, err); {
		case problem != "":
			return unwell(problem)
		case done:
			fmt.Fprintf(cmd.ErrOrStderr(), "The agent runs in %s mode; its rules are written and were compared with the kernel. It now removes the old ones.\n", now.Changed.To)
			return nil
		}
	}
	return unwell("the change is not complete yet: see fairlead status")
}

// An agent that changes its mode does not answer for some seconds. One that has not answered for silentLimit has ended.
const (
	changePause = time.Second / 4
	silentLimit = 90 * time.Second
)

// changeWait observes an agent during the change of its mode.
type changeWait struct {
	before time.Time // start time of the agent that received the request
	silent int       // number of consecutive requests without an answer
}

// see handles one answer or error. It reports whether the change is done, or the reason why it failed.
func (w *changeWait) see(now *inspect.Status, err error) (done bool, problem string) {
	if err != nil {
		if w.silent++; w.silent > int(silentLimit/changePause) {
			return false, fmt.Sprintf("no agent has answered since %s: it exited during the change; its log shows the reason, and its next start uses the mode in its settings", silentLimit)
		}
		return false, ""
	}
	w.silent = 0
	switch c := now.Changed; {
	case !now.Since.After(w.before): // the change has not started yet
		return false, ""
	case c == nil:
		return false, fmt.Sprintf("the agent was restarted during the change and runs in %s mode: the mode was not changed", now.Place)
	case c.Failed != "":
		return false, fmt.Sprintf("the agent is in %s mode again: %s", c.From, c.Failed)
	default:
		return c.Verified, ""
	}
}

func current(ctx context.Context) (*inspect.Status, error) {
	body, err := control.Get(ctx, "/status")
	if err != nil {
		return nil, err
	}
	var s inspect.Status
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, errors.Join(errors.New("read the agent's answer"), err)
	}
	return &s, nil
}
