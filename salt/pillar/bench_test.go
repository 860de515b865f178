package pillar_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/salt/render/rendertest"
	"clustermaster/serve/fileserver"
	"clustermaster/value"
)

// BenchmarkPillar makes pillars of ever other minions: of one small SLS file, and of 40 with Jinja.
func BenchmarkPillar(b *testing.B) {
	small := map[string]string{"top.sls": "base:\n  '*': [a]\n",
		"a.sls": "a: 1\nb: {c: [1, 2, 3]}\n"}
	large := map[string]string{}
	var names []string
	for i := range 40 {
		name := fmt.Sprintf("s%02d", i)
		names = append(names, name)
		large[name+".sls"] = "{% set n = " + fmt.Sprint(i) + " %}\n" + name +
			":\n  id: {{ grains.id }}\n  list:\n{%- for x in range(10) %}\n    - {{ x * n }}\n{%- endfor %}\n"
	}
	large["top.sls"] = "base:\n  '*': [" + strings.Join(names, ", ") + "]\n"
	for name, tree := range map[string]map[string]string{"one_small_SLS": small,
		"40_SLS_with_Jinja": large} {
		b.Run(name, func(b *testing.B) {
			root := b.TempDir()
			for path, text := range tree {
				if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
					b.Fatal(err)
				}
			}
			server, err := fileserver.New(fileserver.Options{Roots: []fileserver.Env{{Name: "base",
				Roots: []string{root}}}}, nil, nil)
			if err != nil {
				b.Fatal(err)
			}
			grains := value.Map{{Key: "os", Value: "Debian"}}
			for i := range 100 {
				grains = append(grains, value.Pair{Key: fmt.Sprintf("grain%d", i),
					Value: []any{"some", "value", int64(i)}})
			}
			c := pillar.New(pillar.Deps{Files: files{server}, Renderer: rendertest.Renderer(),
				Functions: modules.New(modules.Deps{})}, pillar.Options{
				Roots: []pillar.Env{{Name: "base", Roots: []string{root}}},
			}, nil, nil)
			// it starts a worker
			if _, err := c.Pillar(b.Context(),
				pillar.Request{ID: "first",
					Grains: value.Map{{Key: "id", Value: "first"}}}); err != nil {
				b.Fatal(err)
			}
			var n atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					id := fmt.Sprintf("web%d", n.Add(1))
					made, err := c.Pillar(b.Context(),
						pillar.Request{ID: id,
							Grains: append(value.Map{{Key: "id", Value: id}}, grains...)})
					if _, bad := made.Pillar.Get("_errors"); err != nil || bad {
						b.Fatal(made.Pillar, err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pillars/s")
		})
	}
}
