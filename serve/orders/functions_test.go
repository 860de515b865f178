package orders

import (
	"context"
	"strings"
	"testing"

	"clustermaster/salt/modules"
	"clustermaster/salt/runner"
	"clustermaster/value"
)

// TestForTemplate: a template gets what a runner returns although it did not succeed, as with Salt.
// Only one that raises, or can't begin, is an error.
func TestForTemplate(t *testing.T) {
	t.Parallel()
	reg, err := runner.NewRegistry(runner.OnMaster(modules.OnMaster{
		Modules: modules.New(modules.Deps{}),
		Grains:  func(context.Context) value.Map { return nil },
	}))
	if err != nil {
		t.Fatal(err)
	}
	f := &Functions{Runners: runner.New(runner.RunnerClient, reg,
		runner.Deps{NewJID: func() string { return "20261129093513244628" }})}
	for _, tt := range []struct {
		fun     string
		args    []any
		want    string
		success bool
		err     string
	}{
		{"salt.cmd", []any{"cmd.shell", "echo x; exit 3"}, "'x'", false, ""},
		{"salt.cmd", []any{"cmd.retcode", "true"}, "0", true, ""},
		{"error.error", []any{"Exception", "no luck"}, "None", false, "no luck"},
		{"no.such", nil, "None", false, "no.such"},
	} {
		v, success, err := f.ForTemplate(t.Context(), tt.fun, tt.args, nil)
		if got := value.Repr(v); got != tt.want || success != tt.success || (err == nil) != (tt.err == "") ||
			err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s %v: %s, success %v, %v; want %s", tt.fun, tt.args, got, success, err, tt.want)
		}
	}
}
