package statemodules

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

func lookup(t *testing.T, d Deps, fun string) orchestrate.Function {
	t.Helper()
	f, ok := New(d).Lookup(fun)
	if !ok {
		t.Fatalf("no function %s", fun)
	}
	return f
}

func args(pairs ...any) value.Map {
	m := value.Map{}
	for i := 0; i < len(pairs); i += 2 {
		m = append(m, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return m
}

// hanging is a runner that ends with its context.
type hanging struct{ *prepared }

func (hanging) Check(o Order) (Order, error) { return o, nil }
func (hanging) Run(ctx context.Context, _ Order) (Outcome, error) {
	<-ctx.Done()
	return Outcome{}, ctx.Err()
}

// TestCancellation: every function that waits ends with its context.
func TestCancellation(t *testing.T) {
	t.Parallel()
	tests := []struct {
		fun  string
		args value.Map
	}{
		{"salt.state", args("name", "s", "tgt", "web-*", "sls", "a", "timeout", int64(1000))},
		{"salt.function", args("name", "test.ping", "tgt", "web-*", "timeout", int64(1000))},
		{"salt.function", args("name", "test.ping", "tgt", "web-*", "timeout", int64(1000), "batch",
			int64(1))},
		{"salt.function", args("name", "test.ping", "tgt", "web-*", "timeout", int64(1000),
			"subset", int64(1))},
		{"salt.runner", args("name", "a.b")},
		{"salt.wheel", args("name", "a.b")},
		{"salt.parallel_runners", args("name", "p", "runners", args("a", nil, "b", nil))},
		{"salt.wait_for_event", args("name", "my/a/b/*", "id_list", []any{"a"}, "timeout",
			int64(1000))},
	}
	for _, tt := range tests {
		t.Run(tt.fun, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &prepared{c: args("minions", args("web-a", args("silent", true)))}
				d := p.deps()
				d.Runners = hanging{p}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				_, err := call(ctx, lookup(t, d, tt.fun), orchestrate.Call{JID: "ORCH"}, tt.args)
				if !errors.Is(err, context.DeadlineExceeded) ||
					time.Since(began) != 10*time.Second {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

// TestBounds: too many runners are refused.
func TestBounds(t *testing.T) {
	t.Parallel()
	p := &prepared{}
	d := p.deps()
	many := value.Map{}
	for i := range maxParallelRunners + 1 {
		many = append(many, value.Pair{Key: fmt.Sprint("r", i), Value: nil})
	}
	ret, err := call(t.Context(), lookup(t, d, "salt.parallel_runners"), orchestrate.Call{},
		args("name", "p", "runners", many))
	if err != nil || !strings.Contains(ret.String("comment"), "too many") {
		t.Error(ret, err)
	}
}

// TestPublication: the publication for each form in which a state may name targets,
// arguments and returners.
func TestPublication(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		job  job
		want gather.Publish
	}{
		{"text", job{tgt: "web-*", tgtType: "glob", fun: "x.y"},
			gather.Publish{Tgt: "web-*", TgtType: "glob", Fun: "x.y"}},
		{"number", job{tgt: int64(7), tgtType: "glob", fun: "x.y"},
			gather.Publish{Tgt: "7", TgtType: "glob", Fun: "x.y"}},
		{"list", job{tgt: []any{"a", int64(7)}, tgtType: "list", fun: "x.y"},
			gather.Publish{Tgt: []string{"a", "7"}, TgtType: "list", Fun: "x.y"}},
		{"compound in words", job{tgt: []any{"G@os:Debian", "and", "web-*"}, tgtType: "compound",
			fun: "x.y"}, gather.Publish{Tgt: "G@os:Debian and web-*", TgtType: "compound",
			Fun: "x.y"}},
		{"a job id as number", job{tgt: "a", fun: "x.y",
			arg: []any{uint64(12345678901234567890), int64(5)}, kwarg: args("k", "v")},
			gather.Publish{Tgt: "a", Fun: "x.y",
				Arg: []any{"12345678901234567890", int64(5), args("__kwarg__", true, "k", "v")}}},
		{"returners", job{tgt: "a", fun: "x.y", ret: []any{"one", "two"}, retConfig: "alt",
			retKwarg: args("db", "x")},
			gather.Publish{Tgt: "a", Fun: "x.y", Ret: "one,two",
				Kwargs: args("ret_config", "alt", "ret_kwargs", args("db", "x"))}},
	}
	for _, tt := range tests {
		got, err := minions{}.publication(tt.job)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v %v\nwant %+v", tt.name, got, err, tt.want)
		}
	}
	for _, tgt := range []any{nil, args("a", "b")} {
		if p, err := (minions{}).publication(job{tgt: tgt}); err == nil {
			t.Errorf("%v became %v", tgt, p)
		}
	}
}
