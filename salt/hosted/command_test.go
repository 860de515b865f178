package hosted_test

import (
	"context"
	"testing"
	"time"

	"clustermaster/salt/modules"
	"clustermaster/value"
)

// salt-run salt.cmd runs functions that Salt has on machines of this kind only, with the grains of
// the machine and, if it is asked for, the pillar.
func TestCommandSeesTheMachine(t *testing.T) {
	t.Parallel()
	f := functionsOf(t, "3008.3", nil, time.Minute)
	f.States(nil)
	m := modules.OnMaster{Modules: f, ID: "master1",
		Grains: func(ctx context.Context) value.Map {
			return f.Machine(ctx, value.Map{{Key: "own", Value: "yes"}})
		},
		Pillar: func(_ context.Context, _ string, grains value.Map, _, _ string,
			_ value.Map) (value.Map, error) {
			return value.Map{{Key: "of", Value: grains.String("kernel") + grains.String("own")}}, nil
		},
	}
	for _, tt := range []struct {
		fun, arg   string
		withPillar bool
		want       string
		found      bool
	}{
		{"grains.get", "kernel", false, "Linux", true},
		{"grains.get", "own", false, "yes", true},
		{"pillar.get", "of", false, "", true},
		{"pillar.get", "of", true, "Linuxyes", true},
		{"shadow.info", "nosuch", false, "", true},
		{"no.such", "x", false, "None", false},
		{"nosuch", "x", false, "None", false},
	} {
		v, _, found, err := m.Command(t.Context(), tt.fun, []any{tt.arg}, nil, tt.withPillar, true)
		got := value.Str(v)
		if info, is := v.(value.Map); is {
			got = info.String("name")
		}
		if got != tt.want || found != tt.found || err != nil {
			t.Errorf("%s %s, with the pillar %v: %q, %v, %v; want %q", tt.fun, tt.arg, tt.withPillar, got,
				found, err, tt.want)
		}
	}
	for code, args := range map[int][]any{0: {"bash", "true"}, 3: {"bash", "exit 3"}} {
		v, left, _, err := m.Command(t.Context(), "cmd.exec_code_all", args, nil, false, true)
		got, _ := v.(value.Map)
		if n, _ := got.Get("retcode"); left != code || n != int64(code) || err != nil {
			t.Errorf("cmd.exec_code_all %v: retcode %d, %v, %v", args, left, v, err)
		}
	}
}
