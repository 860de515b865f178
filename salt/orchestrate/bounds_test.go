package orchestrate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/salt/orchestrate"
	"clustermaster/test/salttrees"
	"clustermaster/value"
)

// TestBounds: trees that would need too much are refused by name, soon.
func TestBounds(t *testing.T) {
	t.Parallel()
	many := func(n int, form string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(form, "N", fmt.Sprint(i)))
		}
		return b.String()
	}
	for _, c := range []struct {
		name, why string
		data      func(t *testing.T) value.Map
	}{
		{"states", "more than 100000 states", func(*testing.T) value.Map {
			names := make([]any, 100_001)
			for i := range names {
				names[i] = fmt.Sprint(i)
			}
			return value.Map{{Key: "a",
				Value: value.Map{{Key: "test",
					Value: []any{"nop", value.Map{{Key: "names", Value: names}}}}}}}
		}},
		{"requisites", "more than 1000000 requisites", func(t *testing.T) value.Map {
			return salttrees.YAML(t, many(1_500, "sN: {test: [nop, {require: [{test: 't*'}]}]}\n")+
				many(1_500, "tN: {test: [nop]}\n"))
		}},
		{"copies", "more than 2000000 values", func(t *testing.T) value.Map {
			return salttrees.YAML(t, "a:\n  test:\n  - nop\n  - list: ["+
				strings.Repeat("1,", 2_000)+"]\n  - names: ["+many(2_000, "nN,")+"]\n")
		}},
		{"depth", "nested deeper than 100 levels", func(*testing.T) value.Map {
			v := any("x")
			for range 200 {
				v = []any{v}
			}
			return value.Map{{Key: "a",
				Value: value.Map{{Key: "test",
					Value: []any{"nop", value.Map{{Key: "list", Value: v}}}}}}}
		}},
		{"looking up names", "look up states", func(t *testing.T) value.Map {
			return salttrees.YAML(t, many(9_000, "sN: {test: [nop, {use: [{test: nobody}]}]}\n"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ret, err := inMemory(nil).High(t.Context(), c.data(t), orchestrate.Request{})
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%T, %v; want %q", ret, err, c.why)
			}
		})
	}
}

// TestLongChains: as many states as there may be, each requiring the one before, compile and run;
// so does a circle of them as an error.
func TestLongChains(t *testing.T) {
	t.Parallel()
	const n = 20_000
	data := make(value.Map, n)
	for i := range data {
		data[i] = value.Pair{Key: fmt.Sprint("s", i),
			Value: value.Map{{Key: "__sls__", Value: "x"},
				{Key: "test", Value: []any{"nop",
					value.Map{{Key: "require",
						Value: []any{value.Map{{Key: "test", Value: fmt.Sprint("s", i+1)}}}}}}}}}
	}
	o := inMemory(nil)
	ret, err := o.High(t.Context(), append(data[:n-1:n-1],
		value.Pair{Key: fmt.Sprint("s", n-1),
			Value: value.Map{{Key: "__sls__", Value: "x"}, {Key: "test", Value: []any{"nop"}}}}),
		orchestrate.Request{})
	if m, _ := ret.(value.Map); err != nil || len(m) != n || !orchestrate.Succeeded(m) ||
		m[0].Key != fmt.Sprintf("test_|-s%[1]d_|-s%[1]d_|-nop", n-1) {
		t.Errorf("%d returns: %v", len(m), err)
	}
	data[n-1].Value.(value.Map)[1].Value = []any{"nop",
		value.Map{{Key: "require", Value: []any{value.Map{{Key: "test", Value: "s0"}}}}}}
	ret, err = o.High(t.Context(), data, orchestrate.Request{})
	if texts, _ := ret.([]any); err != nil || len(texts) != 1 ||
		!strings.HasPrefix(texts[0].(string),
			"Recursive requisites were found: ({'SLS': 'x', 'ID': 's") {
		t.Errorf("%.200v: %v", ret, err)
	}
}

// TestLongParallelChains: parallel states, each requiring the one before, run one after the other
// however many they are.
func TestLongParallelChains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		text := "s0: {own: [slow, {parallel: true}]}\n"
		for i := 1; i < n; i++ {
			text += fmt.Sprintf("s%d: {own: [slow, {parallel: true}, {require: [{own: s%d}]}]}\n", i, i-1)
		}
		began := time.Now()
		o := with(orchestrate.Deps{}, orchestrate.Options{}, orchestrate.Table{
			"own.slow": stateOf(func(_ context.Context, c orchestrate.Call) (value.Map, error) {
				<-time.After(time.Second) // until the others have been looked at
				return orchestrate.Return(c.Name, nil, true, ""), nil
			})})
		ret, err := high(t, t.Context(), o, text)
		if took := time.Since(began); err != nil || len(ret) != n || !orchestrate.Succeeded(ret) ||
			took != n*time.Second {
			t.Errorf("%d returns after %s: %v, %.300v", len(ret), took, err, ret)
		}
	})
}

// TestDeepIncludes: a chain of includes that does not end is refused.
func TestDeepIncludes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for i := range 300 {
		write(t, root, fmt.Sprintf("files/s%d.sls", i),
			fmt.Sprintf("include: [s%d]\na%d: {test.nop: []}\n", i+1, i))
	}
	o := newOrchestrator(t, root, nil, nil)
	if ret, err := o.SLS(t.Context(), orchestrate.Request{Mods: []string{"s0"}}); err == nil ||
		!strings.Contains(err.Error(), "deeper than 200 levels") {
		t.Errorf("%.100v, %v", ret, err)
	}
	write(t, root, "files/s150.sls", "last: {test.nop: []}\n")
	if ret, err := newOrchestrator(t, root, nil, nil).SLS(t.Context(),
		orchestrate.Request{Mods: []string{"s0"}}); err != nil || len(ret.(value.Map)) != 151 {
		t.Errorf("%.100v, %v", ret, err)
	}
}
