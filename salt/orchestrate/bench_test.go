package orchestrate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

// BenchmarkFortySLS compiles and runs 40 SLS files of ten states each, with requisites within and
// between them.
func BenchmarkFortySLS(b *testing.B) {
	root := b.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "files"), 0o755); err != nil {
		b.Fatal(err)
	}
	var all strings.Builder
	all.WriteString("include:\n")
	for i := range 40 {
		fmt.Fprintf(&all, "  - part%d\n", i)
		var sls strings.Builder
		if i > 0 {
			fmt.Fprintf(&sls, "include:\n  - part%d\n", i-1)
		}
		for j := range 10 {
			fmt.Fprintf(&sls,
				"state_%d_%d:\n  test.succeed_with_changes:\n    - name: n{{ %d + %d }}_%d\n", i, j,
				i, j, i)
			if j > 0 {
				fmt.Fprintf(&sls, "    - require:\n      - test: state_%d_%d\n", i, j-1)
			} else if i > 0 {
				fmt.Fprintf(&sls, "    - onchanges:\n      - sls: part%d\n", i-1)
			}
		}
		write(b, root, fmt.Sprintf("files/part%d.sls", i), sls.String())
	}
	write(b, root, "files/all.sls", all.String())
	o := newOrchestrator(b, root, nil, func(string, value.Map) {})
	run := func() {
		ret, err := o.SLS(context.Background(), orchestrate.Request{Mods: []string{"all"}})
		if m, _ := ret.(value.Map); err != nil || len(m) != 400 || !orchestrate.Succeeded(m) {
			b.Fatal(err, len(m), ret)
		}
	}
	run() // the first one unpacks the templates' interpreter
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(400*float64(b.N)/b.Elapsed().Seconds(), "states/s")
}

func write(t testing.TB, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
