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

// changeLimit is how long a change may take, the way back included.
const changeLimit = 6 * time.Minute

func migrateCommand() *cobra.Command {
	q := question{path: "/migrate"}
	var to string
	var dry bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Change the mode of the agent of this node while it serves",
		Long: `migrate has the agent that runs in this network namespace go on in another mode:
nftables, iptables-nft, iptables-legacy, ipvs, or what fairlead probe recommends (auto).
The rules of the new mode come first and are compared with the kernel, and only then do
the old ones go. If the new mode cannot start, the old one goes on.

With --dry-run it only says what it would do and what cannot survive. The settings of
the agent are not changed: see the line Later.

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
	q.limit = 3 * time.Minute // modes are tried first
	cmd.Flags().StringVar(&to, "to", "", "the mode to change to")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be done")
	return cmd
}

// change has it done and waits until the agent says how it went.
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
	for pause(ctx, time.Second/4) == nil {
		now, err := current(ctx)
		if err != nil || !now.Since.After(before.Since) || now.Changed == nil {
			continue // it is about to change, or no longer the one of before and not yet the new one
		}
		switch c := now.Changed; {
		case c.Failed != "":
			return unwell(fmt.Sprintf("the agent is in %s mode again: %s", c.From, c.Failed))
		case c.Verified:
			fmt.Fprintf(cmd.ErrOrStderr(), "The agent runs in %s mode, its rules are in and compared with the kernel. The old ones go now.\n", c.To)
			return nil
		}
	}
	return unwell("the change has not ended yet: ask fairlead status")
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
