package master

import (
	"context"
	"fmt"
	"strings"

	"clustermaster/target"
	"clustermaster/wire"
)

// Bounds of one batch of events.
const (
	maxTag          = 1024   // bytes
	maxNamedMinions = 100000 // that a syndic names for a job
)

// reserved are the tags that only a master fires. Salt checks them in batches only; here they are checked always.
var reserved = []string{
	"salt/job/*/publish", "salt/job/*/new", "salt/job/*/return", "salt/key", "salt/cloud/*", "salt/run/*", "salt/cluster/*",
	"salt/wheel/*/new", "salt/wheel/*/return",
}

// minionEvent fires what a minion sends.
func (m *Master) minionEvent(ctx context.Context, c *call) (any, error) {
	if c.ID == "" {
		return wire.Map{}, nil
	}
	if events, ok := c.Load.Get("events"); ok {
		return nil, m.batch(ctx, c, events)
	}
	tag := c.Load.String("tag")
	if _, ok := c.Load.Get("data"); !ok || !m.mayFire(c, tag) {
		return nil, nil
	}
	m.deps.Bus.FireRawMap(tag, c.Load)
	m.metrics.events.WithLabelValues("fired").Inc()
	return nil, nil
}

func (m *Master) batch(ctx context.Context, c *call, events wire.Raw) error {
	v, err := events.Unpack()
	if err != nil {
		return fmt.Errorf("decode events: %w", err)
	}
	list, _ := v.([]any)
	base, hasBase := c.Load.Get("pretag")
	pretag, _ := base.Text()
	for _, item := range list {
		entry, ok := item.(wire.Map)
		tag := entry.String("tag")
		data := entry
		if v, has := entry.Get("data"); has {
			data, ok = v.(wire.Map)
		}
		if !ok || tag == "" || len(tag) > maxTag {
			m.metrics.events.WithLabelValues("dropped").Inc()
			continue
		}
		if hasBase && !base.IsNil() {
			// The copy for a syndic's master. Below another prefix a reserved tag is harmless, so the joined one counts.
			if joined := tagify(pretag, tag); m.mayFire(c, joined) {
				m.deps.Bus.Fire(joined, data)
			}
		}
		if !m.mayFire(c, tag) {
			continue
		}
		m.deps.Bus.Fire(tag, data)
		m.metrics.events.WithLabelValues("fired").Inc()
		if err := m.locally(ctx, c, tag, data); err != nil {
			return err
		}
	}
	return nil
}

// locally does what some events mean to the master itself.
func (m *Master) locally(ctx context.Context, c *call, tag string, data wire.Map) error {
	if tag == "_salt_error" {
		m.log.Warn("minion reports an error", "minion", c.ID, "err", data.String("message"))
	}
	list, ok := data.Get("minions")
	jid := data.String("jid")
	names, isList := list.([]any)
	if !ok || !isList || !validJID(jid) || len(names) > maxNamedMinions {
		return nil
	}
	ids := make([]string, 0, len(names))
	for _, n := range names {
		if id, ok := n.(string); ok && wire.ValidID(id) {
			ids = append(ids, id)
		}
	}
	if err := m.deps.Jobs.SaveMinions(ctx, jid, c.ID, ids); err != nil {
		return fmt.Errorf("%w: save minions of job %s: %w", errUnacknowledged, jid, err)
	}
	return nil
}

// mayFire reports whether a minion may fire tag: not what only a master fires, and not another minion's return.
func (m *Master) mayFire(c *call, tag string) bool {
	if tag == "" || len(tag) > maxTag {
		m.metrics.events.WithLabelValues("dropped").Inc()
		return false
	}
	if strings.HasPrefix(tag, "salt/") {
		blocked := false
		for _, pattern := range reserved {
			blocked = blocked || target.Glob(pattern, tag)
		}
		if blocked || (target.Glob("salt/job/*/ret/*", tag) && !strings.HasSuffix(tag, "/ret/"+c.ID)) {
			m.metrics.events.WithLabelValues("blocked").Inc()
			m.refused.note("event_tag", c.ID, c.remote)
			return false
		}
	}
	return true
}

// tagify joins tag parts and leaves out empty ones.
func tagify(parts ...string) string {
	var out []string
	for _, part := range parts {
		for _, p := range strings.Split(part, "/") {
			if p != "" {
				out = append(out, p)
			}
		}
	}
	return strings.Join(out, "/")
}
