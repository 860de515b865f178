package runner

import (
	"context"
	"fmt"

	"clustermaster/salt/function"
)

// PKI is the family pki. write replaces the contents of the mmap_key driver's files in the key
// folder by all keys.
func PKI(keys Keys, write func(ctx context.Context) error) []Function {
	status := func(ctx context.Context, head string, c *Call) (any, error) {
		lists, note, err := keys.KeyLists(ctx)
		if err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
		if note != "" {
			c.Warn(note)
		}
		n := func(state string) int { return len(lists[state]) }
		total := n(StateAccepted) + n(StatePending) + n(StateRejected) + n(StateDenied)
		return fmt.Sprintf("%s\n  Accepted: %s\n  Pending:  %s\n  Rejected: %s\n  Denied:   %s\n  Total:    %s", head, thousands(n(StateAccepted)),
			thousands(n(StatePending)), thousands(n(StateRejected)), thousands(n(StateDenied)),
			thousands(total)), nil
	}
	const dry = "PKI migration dry-run (no changes written):"
	return []Function{
		{
			Name: "pki.status",
			Doc: `Count the minion keys by state.

Example:

    salt-run pki.status`,
			Run: func(ctx context.Context, c *Call) (any, error) { return status(ctx, dry, c) },
		},
		{
			Name: "pki.migrate_to_mmap", Params: []function.Param{function.Opt("dry_run", false)},
			Doc: `Write all minion keys as files of the mmap_key driver into the key folder, in place of the
present files: for a return to a Salt master with that driver. The cluster's keys stay as they
are, and later changes are not written there.

dry_run
    Count only.

Example:

    salt-run pki.migrate_to_mmap dry_run=True
    salt-run pki.migrate_to_mmap`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				if c.True("dry_run") {
					return status(ctx, dry, c)
				}
				if err := write(ctx); err != nil {
					return nil, err
				}
				return status(ctx, "PKI keys migrated to mmap_key backend successfully.", c)
			},
		},
	}
}
