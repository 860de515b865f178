package master

import (
	"context"
	"fmt"

	"clustermaster/value"
	"clustermaster/wire"
)

// command handles one aes command. The value is the reply. For an error the minion gets what failed
// returns.
type command func(ctx context.Context, c *call) (val any, err error)

// command returns the handler of cmd and its metric label. Unknown commands, and private ones of
// Salt, get an empty map.
func (m *Master) command(cmd string) (command, string) {
	switch cmd {
	case "_return":
		return m.minionReturn, cmd
	case "_minion_event":
		return m.minionEvent, cmd
	case "_syndic_return":
		return m.syndicReturn, cmd
	case "_pillar":
		return m.pillar, cmd
	case "_master_opts":
		return m.masterOpts, cmd
	case "_master_tops":
		return m.masterTops, cmd
	case "_mine":
		return m.mine, cmd
	case "_mine_get":
		return m.mineGet, cmd
	case "_mine_delete":
		return m.mineDelete, cmd
	case "_mine_flush":
		return m.mineFlush, cmd
	case "_file_list", "_file_list_emptydirs", "_dir_list", "_symlink_list", "_file_find",
		"_file_hash", "_file_hash_and_stat",
		"_serve_file", "_file_envs":
		return m.files, cmd
	case "_file_recv":
		return m.fileRecv, cmd
	case "_register_resources":
		return m.registerResources, cmd
	case "revoke_auth":
		return m.revokeAuth, cmd
	case "minion_pub":
		return m.minionPub, cmd
	case "minion_publish":
		return m.minionPublish, cmd
	case "pub_ret":
		return m.pubRet, cmd
	case "minion_runner":
		return m.minionRunner, cmd
	case "verify_minion": // exposed by Salt, but cannot be called
		return constant(""), cmd
	}
	return constant(value.Map{}), unknownCommand
}

// forAll reports whether a command does the same for every caller, because it acts for no id.
func forAll(cmd string) bool {
	switch cmd {
	case "_file_list", "_file_list_emptydirs", "_dir_list", "_symlink_list", "_file_find",
		"_file_hash", "_file_hash_and_stat",
		"_serve_file", "_file_envs", "_master_opts":
		return true
	}
	return false
}

// failed is the reply to a command that failed: the empty text, as with Salt. For lists of files it
// is nil, on which minions fail: they take the empty text for a list without files, and
// file.recurse with clean removes what is not listed.
func failed(cmd string) any {
	switch cmd {
	case "_file_list", "_file_list_emptydirs", "_dir_list", "_symlink_list":
		return nil
	}
	return ""
}

// unknownCommand is the metric label of all unknown commands.
const unknownCommand = "other"

func constant(v any) command {
	return func(context.Context, *call) (any, error) { return v, nil }
}

func (m *Master) files(ctx context.Context, c *call) (any, error) {
	if m.deps.Files == nil {
		return value.Map{}, nil
	}
	load, err := c.Load.Map()
	if err != nil {
		return nil, err
	}
	if m.deps.Commits != nil && c.ID != "" {
		ctx = m.deps.Commits.For(ctx, c.ID)
	}
	if err := m.reading.enter(ctx); err != nil {
		return nil, err
	}
	defer m.reading.leave()
	v, err := m.deps.Files.Serve(ctx, c.Cmd, load)
	if err != nil {
		return nil, err
	}
	// The reply counts before it is made; it takes longer to seal than to list.
	if err := c.hold(int64(wire.PackedGuess(v))); err != nil {
		m.refused.note("memory", c.ID, c.remote)
		return nil, err
	}
	return v, nil
}

// masterOpts returns the options that a minion's state runs depend on. The minion indexes all of
// them.
func (m *Master) masterOpts(_ context.Context, c *call) (any, error) {
	envs := value.Map{}
	if m.opts.FileEnvs != nil {
		for _, env := range m.opts.FileEnvs() {
			envs = envs.Set(env, []any{})
		}
	}
	opts := value.Map{
		{Key: "file_roots", Value: envs},
		{Key: "top_file_merging_strategy", Value: "merge"},
		{Key: "env_order", Value: []any{}},
		{Key: "default_top", Value: "base"},
	}
	n := len(opts)
	opts = append(opts, value.Map{
		{Key: "renderer", Value: "jinja|yaml"},
		{Key: "failhard", Value: false},
		{Key: "state_top", Value: "salt://top.sls"},
		{Key: "state_top_saltenv", Value: nil},
		{Key: "nodegroups", Value: value.Map{}},
		{Key: "state_auto_order", Value: true},
		{Key: "state_events", Value: false},
		{Key: "state_aggregate", Value: false},
		{Key: "jinja_env", Value: value.Map{}},
		{Key: "jinja_sls_env", Value: value.Map{}},
		{Key: "jinja_lstrip_blocks", Value: false},
		{Key: "jinja_trim_blocks", Value: false},
	}...)
	if raw, _ := c.Load.Get("env_only"); isTrue(raw) {
		opts = opts[:n]
	}
	for i, p := range opts {
		if p.Key == "file_roots" {
			continue
		}
		if p.Key == "nodegroups" {
			if groups := m.groups.Load(); groups != nil {
				opts[i].Value = *groups
				continue
			}
		}
		if v, ok := m.opts.MasterOpts.Get(p.Key.(string)); ok {
			opts[i].Value = v
		}
	}
	return opts, nil
}

// masterTops returns what master_tops has for the channel's id. The minion's options are only
// passed on.
func (m *Master) masterTops(ctx context.Context, c *call) (any, error) {
	if m.opts.MasterTops == nil || c.ID == "" {
		return value.Map{}, nil
	}
	var opts value.Map
	if raw, ok := c.Load.Get("opts"); ok {
		var err error
		if opts, err = raw.Map(); err != nil {
			return nil, fmt.Errorf("options of %q: %w", c.ID, err)
		}
	}
	return m.opts.MasterTops(ctx, c.ID, opts), nil
}

// registerResources answers a request that every 3008 minion sends at its start.
func (m *Master) registerResources(_ context.Context, c *call) (any, error) {
	if _, ok := c.Load.Get("resources"); !ok || c.ID == "" {
		return value.Map{}, nil
	}
	m.deps.Bus.Fire("resource/refresh/"+c.ID,
		value.Map{{Key: "Resource cache refresh", Value: c.ID}})
	return true, nil
}

func (m *Master) revokeAuth(ctx context.Context, c *call) (any, error) {
	if c.ID == "" {
		return value.Map{}, nil
	}
	if !m.opts.AllowMinionKeyRevoke {
		return c.Load, nil
	}
	if err := m.deps.Keys.Revoke(ctx, c.ID); err != nil {
		return nil, err
	}
	return true, nil
}

// isTrue returns Python's truth of a value.
func isTrue(raw value.Raw) bool {
	v, err := raw.Unpack()
	return err == nil && len(raw) > 0 && value.Truth(v)
}
