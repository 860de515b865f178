package render

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"clustermaster/value"
)

// benchContext is as large as a real minion's: some 150 grains and the options of a master.
func benchContext(n int) Context {
	c := Context{ID: "web" + strconv.Itoa(n),
		Grains: object("id", "web"+strconv.Itoa(n), "os", "Debian", "roles", []any{"web", "db"})}
	for i := range 150 {
		c.Grains = append(c.Grains, value.Pair{Key: fmt.Sprintf("grain%d", i),
			Value: object("a", "value of some length", "b", []any{int64(i), "x"})})
	}
	for i := range 300 {
		c.Opts = append(c.Opts, value.Pair{Key: fmt.Sprintf("option_%d", i), Value: "some value"})
	}
	return c
}

const smallSLS = "app:\n  name: {{ grains.id }}\n  os: {{ grains['os'] }}\n{% for r in grains.roles %}\n  {{ r }}: {{ loop.index }}\n{% endfor %}\n"

func benchTree() []Source {
	var out []Source
	for i := range 40 {
		text := fmt.Sprintf("{%% from 'map.jinja' import port, line with context %%}\nsls%d:\n", i)
		for k := range 20 {
			text += fmt.Sprintf("  key%d: {{ salt['grains.get']('os') }} {{ port + %d }}\n", k, k)
		}
		out = append(out, source(fmt.Sprintf("sls%d", i), text+"  id: {{ grains.id }}\n"))
	}
	return out
}

func benchHost() tree {
	return tree{
		files: map[string]string{"map.jinja": "{% set port = 80 %}{% macro line(k) %}{{ k }}{% endmacro %}"},
		calls: map[string]func(context.Context, []any, value.Map) (any, error){
			"grains.get": func(context.Context, []any, value.Map) (any,
				error) {
				return "Debian", nil
			},
		},
	}
}

// BenchmarkRender measures renders per second. With kept=true the minions' renders are cached; with
// kept=false the cache is off, and every template goes to a worker.
func BenchmarkRender(b *testing.B) {
	for _, size := range []struct {
		name    string
		sources []Source
	}{
		{"plain", []Source{source("t", "key: [1, 2, three]\nother: {a: b}\n")}},
		{"small", []Source{source("t", smallSLS)}},
		{"tree40", benchTree()},
	} {
		for _, kept := range []bool{false, true} {
			o := Options{CacheSize: -1}
			if kept {
				o.CacheSize = 0
			}
			b.Run(fmt.Sprintf("%s/kept=%v", size.name, kept), func(b *testing.B) {
				r := newRenderer(b, o)
				h := benchHost()
				contexts := make([]Context, 50)
				for i := range contexts {
					contexts[i] = benchContext(i)
				}
				all := func(c Context) {
					for _, s := range size.sources {
						if _, err := r.Render(b.Context(), s, "jinja|yaml", c, h); err != nil {
							b.Fatal(err)
						}
					}
				}
				for _, c := range contexts {
					all(c)
				}
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						all(contexts[i%len(contexts)])
					}
				})
				b.ReportMetric(float64(b.N*len(size.sources))/b.Elapsed().Seconds(), "renders/s")
				b.ReportMetric(float64(workerMemory(b, r))/(1<<20), "MiB/worker")
			})
		}
	}
}

// workerMemory is the largest private memory of a worker, in bytes.
func workerMemory(b *testing.B, r *Renderer) int64 {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	var most int64
	for _, w := range r.pool.idle {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", w.cmd.Process.Pid))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
				n, _ := strconv.ParseInt(f[1], 10, 64)
				most = max(most, n<<10)
			}
		}
	}
	return most
}
