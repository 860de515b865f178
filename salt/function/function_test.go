package function

import (
	"testing"

	"clustermaster/value"
)

// TestErrors holds what CPython 3.11 answers to such calls, and Salt 3008.3 prints before "Usage".
func TestErrors(t *testing.T) {
	t.Parallel()
	one, two := Signature{Name: "m.f", Params: []Param{Need("a")}}, Signature{Name: "g",
		Params: []Param{Need("a"), Opt("b", 1)}}
	four := Signature{Name: "m.h", Params: []Param{Need("a"), Need("b"), Need("c"), Need("d")}}
	z, a := value.Map{{Key: "z", Value: 1}}, value.Map{{Key: "a", Value: 1}}
	for _, tt := range []struct {
		s      Signature
		args   []any
		kwargs value.Map
		want   string
	}{
		{one, []any{1, 2}, z, "f() got an unexpected keyword argument 'z'"},
		{one, []any{1, 2}, a, "f() got multiple values for argument 'a'"},
		{one, []any{1, 2}, append(a[:1:1], z...), "f() got multiple values for argument 'a'"},
		{one, nil, z, "f() got an unexpected keyword argument 'z'"},
		{one, []any{1, 2}, nil, "f() takes 1 positional argument but 2 were given"},
		{two, []any{1, 2, 3}, nil, "g() takes from 1 to 2 positional arguments but 3 were given"},
		{Signature{Name: "n"}, []any{1}, nil, "n() takes 0 positional arguments but 1 was given"},
		{one, nil, nil, "f() missing 1 required positional argument: 'a'"},
		{four, []any{1, 2}, nil, "h() missing 2 required positional arguments: 'c' and 'd'"},
		{four, []any{1}, nil, "h() missing 3 required positional arguments: 'b', 'c', and 'd'"},
		{four, nil, nil, "h() missing 4 required positional arguments: 'a', 'b', 'c', and 'd'"},
		{Signature{Name: "f.locality", Params: []Param{Opt("locality", "us")}}, []any{"a", "b"},
			nil, "locality() takes from 0 to 1 positional arguments but 2 were given"},
		{four, []any{1}, value.Map{{Key: "c", Value: 1}},
			"h() missing 2 required positional arguments: 'b' and 'd'"},
		{two, []any{1}, nil, ""}, {one, nil, a, ""},
	} {
		got := ""
		if _, err := tt.s.Bind(tt.args, tt.kwargs); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s %v %v: %q, want %q", tt.s.Name, tt.args, tt.kwargs, got, tt.want)
		}
	}
}

func TestBind(t *testing.T) {
	t.Parallel()
	s := Signature{Name: "m.f", Params: []Param{Need("a"), Opt("b", "fallback")}, VarArgs: true,
		VarKwargs: true}
	b, err := s.Bind([]any{1, 2, 3}, value.Map{{Key: "z", Value: 4}})
	if err != nil || b.Named["a"] != 1 || b.Named["b"] != 2 || len(b.Rest) != 1 || b.Rest[0] != 3 ||
		b.Kwargs.String("z") != "" || len(b.Kwargs) != 1 {
		t.Errorf("bound %+v, %v", b, err)
	}
	if b, err = s.Bind([]any{1}, nil); err != nil || b.Named["b"] != "fallback" ||
		len(b.Rest) != 0 {
		t.Errorf("bound %+v, %v", b, err)
	}
}
