package modules

import (
	"context"
	"testing"

	"clustermaster/value"
)

// TestRetcodes: the retcode that a function leaves, as measured with salt-run of 3008.3.
func TestRetcodes(t *testing.T) {
	t.Parallel()
	m := OnMaster{
		Modules: New(Deps{Runner: func(ctx context.Context, _ string, _ []any, _ value.Map) (any,
			bool, error) {
			leave(ctx, 3)
			return "done", false, nil
		}}),
		Grains: func(context.Context) value.Map { return nil },
	}
	set := func(key string, v any) value.Map { return value.Map{{Key: key, Value: v}} }
	for _, tt := range []struct {
		fun    string
		args   []any
		kwargs value.Map
		want   int
	}{
		{"cmd.run", []any{"true"}, nil, 0},
		{"cmd.run", []any{`sh -c "exit 3"`}, nil, 3},
		{"cmd.run_all", []any{"test -e /nosuch"}, nil, 1},
		{"cmd.retcode", []any{"test -e /nosuch"}, nil, 1},
		{"cmd.run_stdout", []any{"test -e /nosuch"}, nil, 1},
		{"cmd.run_stderr", []any{"test -e /nosuch"}, nil, 1},
		{"cmd.shell", []any{"exit 4"}, nil, 4},
		{"cmd.shell", []any{"exit 4"}, set("ignore_retcode", true), 0},
		{"cmd.shell", []any{"exit 4"}, set("success_retcodes", []any{int64(4)}), 0},
		{"cmd.run", []any{"sleep 60"}, set("timeout", 0.01), 0},
		{"test.retcode", []any{int64(5)}, nil, 5},
		{"test.ping", nil, nil, 0},
		{"saltutil.runner", []any{"salt.cmd"}, nil, 0}, // whose __context__ is another
	} {
		v, got, found, err := m.Command(t.Context(), tt.fun, tt.args, tt.kwargs, false, true)
		if got != tt.want || !found || err != nil {
			t.Errorf("%s %v %v: retcode %d, want %d; %v, %v", tt.fun, tt.args, tt.kwargs, got, tt.want,
				v, err)
		}
	}
	v, err := m.Modules.Call(t.Context(), Minion{}, "saltutil.runner", []any{"salt.cmd"},
		set("full_return", true))
	if got := value.Repr(v); err != nil ||
		got != "{'return': 'done', 'success': False, 'fun': 'runner.salt.cmd'}" {
		t.Errorf("the full return of a runner that failed: %s, %v", got, err)
	}
}
