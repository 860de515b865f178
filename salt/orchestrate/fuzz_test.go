package orchestrate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"clustermaster/salt/modules"
	"clustermaster/salt/orchestrate"
	"clustermaster/salt/statemodules"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// inMemory runs high data without files: what a hostile SLS file may hold comes to the compiler as
// it is.
func inMemory(fire func(tag string, data value.Map)) *orchestrate.Orchestrator {
	return orchestrate.New(orchestrate.Deps{
		Modules: noModules{}, Functions: statemodules.Test(), Fire: fire,
		Pillar: func(context.Context, string, value.Map, string, string, value.Map) (value.Map,
			error) {
			return nil, nil
		},
	}, orchestrate.Options{ID: "master1", AutoOrder: true, Events: true}, nil, nil)
}

type noModules struct{}

func (noModules) Has(context.Context, string) bool { return false }

func (noModules) Call(context.Context, modules.Minion, string, []any, value.Map) (any, error) {
	return nil, errors.New("there are no modules")
}

// FuzzHigh: whatever high data holds, the compiler ends with returns or texts, one return for each
// tag, and nothing panics.
func FuzzHigh(f *testing.F) {
	for _, seed := range []string{
		"a: {test: [nop]}",
		"a: {test: [nop, {require: [{test: b}]}]}\nb: {test: [nop, {names: [x, {y: [{order: 1}]}]}]}",
		"a: {test: [succeed_with_changes, {prereq: [{test: b}]}]}\nb: {test: [nop, {prereq: [{test: c}]}]}\nc: {test: [nop, {listen_in: [{test: a}]}]}",
		"a: {test: [nop, {use: [{test: b}]}]}\nb: {test: [nop, {use_in: [{sls: x}]}, {require_in: {test.nop: a}}]}\n__extend__: [{a: {test: [{name: z}]}}]",
		"__exclude__: [{id: a}, b*, {sls: 5}]\na: {test: [nop], __sls__: b}\n5: {test: [nop]}\nc: [x]", "a: {test: [{}, {require: []}, {{}: {}}, nop, {order: .nan}, {retry: {attempts: 3, interval: 0}}]}",
		"a: {test: [nop, {parallel: true}, {require: ['*', {'test': '*'}]}]}\nb: {test: [fail_without_changes, {onfail_all: [c]}, {fire_event: [1]}]}\nc: {test: [configurable_test_state, {changes: {a: b}}]}",
		"a: {test: [nop, {listen: [{test: test}]}, {onlyif: [{fun: 5}]}, {check_cmd: [[]]}, {umask: [1]}, {name: __slot__:salt:a(b)}]}", "__extend__: {a: b}\na: {x: [y]}",
	} {
		f.Add(seed)
	}
	o := inMemory(func(string, value.Map) {})
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "interval") && !strings.Contains(text, "interval: 0") ||
			strings.Contains(text, "retry: t") {
			t.Skip("waits") // the default of retry is half a minute
		}
		v, err := yaml11.Load([]byte(text))
		if err != nil {
			return
		}
		data, ok := v.(value.Map)
		if !ok {
			return
		}
		before := value.Repr(data)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		ret, err := o.High(ctx, data, orchestrate.Request{JID: "1"})
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("does not end: %q", text)
		}
		if value.Repr(data) != before {
			t.Fatalf("the caller's data was changed: %q", text)
		}
		switch ret := ret.(type) {
		case value.Map:
			seen := map[string]bool{}
			for _, p := range ret {
				tag, _ := p.Key.(string)
				one, ok := p.Value.(value.Map)
				if !ok || seen[tag] {
					t.Fatalf("return %q: twice, or no map: %v", tag, p.Value)
				}
				seen[tag] = true
				for _, key := range []string{"result", "changes", "comment", "name"} {
					if _, ok := one.Get(key); !ok {
						t.Fatalf("return %q lacks %s: %v", tag, key, one)
					}
				}
			}
			if _, err := value.Pack(ret); err != nil {
				t.Fatalf("returns can't be sent: %v", err)
			}
		case []any:
			if len(ret) == 0 {
				t.Fatal("refused without a reason")
			}
		default:
			if err == nil {
				t.Fatalf("neither returns nor reasons: %v", ret)
			}
		}
	})
}
