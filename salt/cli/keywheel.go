package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"clustermaster/salt/output"
	"clustermaster/serve/operator"
	"clustermaster/value"
)

// external is salt-key for a user of external_auth. Each step calls a wheel
// function with the user's rights.
func (r *keyRun) external(ctx context.Context, action string) int {
	d, err := r.env.dial(ctx, r.opts)
	if err != nil {
		r.env.errorf("ERROR: %s", err)
		return ExitFailed
	}
	defer d.Close()
	r.daemon = d
	switch err := r.env.login(ctx, r.v, r.opts, d, false); {
	case errors.Is(err, errNoLogin):
		r.env.logError(err.Error())
		return r.failed(errors.New(userRefused))
	case errors.As(err, new(*operator.RefusedError)):
		return r.failed(err)
	case err != nil:
		r.env.errorf("ERROR: %s", err)
		return ExitFailed
	}
	name, match := r.asked(action)
	switch name {
	case "list":
		return r.showWheel(ctx, "key.list", match)
	case "print", "finger":
		return r.showWheel(ctx, "key."+name, match)
	}
	return r.changeByWheel(ctx, name, match)
}

// wheel calls a wheel function and returns its map.
func (r *keyRun) wheel(ctx context.Context, fun string, kwargs value.Map, args ...any) (value.Map,
	error) {
	res, err := r.daemon.Run(ctx, operator.RunRequest{Fun: "wheel." + fun, Args: args,
		Kwargs: kwargs}, func(kind string, v any) {
		if kind == "warning" {
			r.env.logWarning(strings.TrimRight(value.Str(v), "\n"))
		}
	})
	if err != nil {
		return nil, err
	}
	m, ok := res.Return.(value.Map)
	if !ok || !res.Success {
		return nil, errors.New(value.Str(res.Return))
	}
	if fun != "key.finger" {
		m = m.Without("local")
	}
	return m, nil
}

// failed prints the error of a call and exits with 0, as Salt does.
func (r *keyRun) failed(err error) int {
	if show := r.print.show(output.Result{Value: err.Error(), Outputter: "nested"}); show != nil {
		r.env.errorf("ERROR: %s", show)
	}
	return ExitOK
}

func (r *keyRun) showWheel(ctx context.Context, fun, match string) int {
	m, err := r.wheel(ctx, fun, nil, match)
	if err != nil {
		return r.failed(err)
	}
	return r.display(m)
}

// changeByWheel accepts, rejects or deletes the matching keys, after showing them and asking.
func (r *keyRun) changeByWheel(ctx context.Context, action, match string) int {
	all, err := r.wheel(ctx, "key.glob_match", nil, match)
	if err != nil {
		return r.failed(err)
	}
	states, words := r.affected(action)
	found, ids := value.Map{}, []any{}
	for _, p := range all {
		if state, _ := p.Key.(string); contains(states, state) {
			list, _ := p.Value.([]any)
			found, ids = append(found, p), append(ids, list...)
		}
	}
	if agreed, code := r.agree(ctx, action, match, words, found); !agreed {
		return code
	}
	var kwargs value.Map
	for option, state := range map[string]string{"include_accepted": accepted,
		"include_rejected": rejected, "include_denied": denied} {
		if action != "delete" && contains(states, state) {
			kwargs = append(kwargs, value.Pair{Key: option, Value: true})
		}
	}
	if _, err := r.wheel(ctx, "key."+action, kwargs, ids); err != nil {
		return r.failed(err)
	}
	for _, id := range ids {
		r.env.println(fmt.Sprintf("Key for minion %s %sed.", value.Str(id),
			strings.TrimSuffix(action, "e")))
	}
	return ExitOK
}
