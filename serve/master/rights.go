package master

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clustermaster/salt/target"
	"clustermaster/serve/acl"
)

// authorized returns where a user's rights cover a job for these minions, and fires an event if
// they don't.
func (m *Master) authorized(ctx context.Context, r PublishRequest, minions []string) (acl.Cover,
	error) {
	if r.Rights == nil {
		return acl.Anywhere, nil
	}
	funs := names(r.Fun)
	fun, one := r.Fun.(string)
	if one {
		funs = []string{fun}
	}
	order := acl.Order{Funs: funs, Several: !one, Args: r.Arg, Minions: minions}
	where, err := r.Rights.Allow(ctx, order, m.certain)
	if err != nil || where != acl.Nowhere {
		return where, err
	}
	m.log.Warn("order refused: not within the user's rights", "user", r.User, "fun", r.Fun, "tgt",
		textual(r.Tgt))
	m.metrics.unauthorized.Inc()
	switch {
	case r.Load == nil:
		m.tellRefused(requestLoad(r), r.JID, notAuthorized)
	case has(r.Load, "jid"):
		m.tellRefused(r.Load, r.JID, notAuthorized)
	}
	return acl.Nowhere, nil
}

// certain resolves a compound target of rights.
func (m *Master) certain(ctx context.Context, compound string) ([]string, error) {
	found, err := target.Certain(ctx, "compound", compound, "", m.deps.Targets)
	return found.Minions, err
}

// confined narrows a target to its certain minions, for a job that rights cover on these minions
// only. The minions get a list of ids and do not evaluate the target again, so confined leaves out
// those that only may match.
func (m *Master) confined(ctx context.Context, r PublishRequest, delimiter string,
	found target.Result) (target.Result, error) {
	certain, err := m.resolveCertain(ctx, r, delimiter)
	if err != nil {
		return found, fmt.Errorf("resolve target: %w", err)
	}
	checked := setOf(found.Minions)
	found.Minions = slices.DeleteFunc(certain.Minions, func(id string) bool {
		_, is := checked[id]
		return !is || misread(id)
	})
	return found, nil
}

// resolveCertain returns the minions that a job's target certainly means.
func (m *Master) resolveCertain(ctx context.Context, r PublishRequest,
	delimiter string) (target.Result, error) {
	if !r.ofMinion {
		return target.Certain(ctx, r.TgtType, r.Tgt, delimiter, m.deps.Targets)
	}
	done, err := m.resolving.enter(ctx)
	if err != nil {
		return target.Result{}, err
	}
	defer done()
	return target.CertainMinions(ctx, r.TgtType, r.Tgt, m.deps.Targets)
}

// misread reports whether minions may match a list with this id although it is not theirs: they
// search it for ",id," (salt/matchers/list_match.py), and resources trim the id.
func misread(id string) bool {
	return strings.HasPrefix(id, ",") && strings.HasSuffix(id, ",") || strings.TrimSpace(id) != id
}
