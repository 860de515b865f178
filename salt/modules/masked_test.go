package modules

import (
	"context"
	"testing"

	"clustermaster/value"
)

// TestPillarOutsideTemplates: a call for an operator masks pillar values, one for a template does
// not.
func TestPillarOutsideTemplates(t *testing.T) {
	t.Parallel()
	pillar := value.Map{{Key: "text", Value: "secret"}, {Key: "none", Value: nil},
		{Key: "deep", Value: value.Map{{Key: "list", Value: []any{int64(7), int64(0), "", true,
			[]byte("b")}}}}}
	const (
		plain = "{'text': 'secret', 'none': None, 'deep': {'list': [7, 0, '', True, b'b']}}"
		stars = "{'text': '**********', 'none': None, 'deep': {'list': ['**********', 0, '', '**********', b'**********']}}"
	)
	unmask := func(v any) value.Map { return value.Map{{Key: "unmask", Value: v}} }
	for _, tt := range []struct {
		fun         string
		args        []any
		kwargs      value.Map
		option      any // pillar_mask_output
		forTemplate bool
		want        string
	}{
		{"pillar.items", nil, nil, true, false, stars},
		{"pillar.items", nil, nil, true, true, plain},
		{"pillar.items", nil, nil, false, false, plain},
		{"pillar.items", nil, unmask(false), false, false, stars},
		{"pillar.items", nil, unmask(true), true, false, plain},
		{"pillar.items", []any{"text"}, unmask(true), false, false, "{'text': '**********'}"},
		{"pillar.item", []any{"text"}, nil, false, false, "{'text': '**********'}"},
		{"pillar.item", []any{"text"}, unmask(true), true, false, "{'text': 'secret'}"},
		{"pillar.get", []any{"text"}, nil, false, false, "'**********'"},
		{"pillar.get", []any{"text"}, nil, true, true, "'secret'"},
		{"pillar.get", []any{"text"}, unmask(nil), true, false, "'**********'"},
		{"pillar.get", []any{"text", "", false, nil, ":", nil, nil, true}, nil, true, false,
			"'secret'"},
		{"pillar.raw", nil, nil, true, false, plain},
		{"pillar.raw", nil, unmask(false), true, false, stars},
		{"pillar.ls", nil, nil, true, false, "['text', 'none', 'deep']"},
	} {
		m := OnMaster{Modules: New(Deps{}), ID: "master1",
			Opts:   value.Map{{Key: "pillar_mask_output", Value: tt.option}},
			Grains: func(context.Context) value.Map { return nil },
			Pillar: func(context.Context, string, value.Map, string, string, value.Map) (value.Map,
				error) {
				return pillar, nil
			}}
		v, _, _, err := m.Command(t.Context(), tt.fun, tt.args, tt.kwargs, true, tt.forTemplate)
		if got := value.Repr(v); got != tt.want || err != nil {
			t.Errorf("%s %v %v, template %v: %s, %v; want %s", tt.fun, tt.args, tt.kwargs,
				tt.forTemplate, got, err, tt.want)
		}
	}
	if got := value.Repr(pillar); got != plain {
		t.Errorf("the pillar is now %s", got)
	}
}
