// Package rendertest is the renderer of other packages' tests: one for all tests of a package, made
// when first asked for.
package rendertest

import (
	"context"
	"os"
	"sync"
	"testing"

	"clustermaster/salt/render"
	"clustermaster/test/unpacked"
)

var used bool

var shared = sync.OnceValue(func() *render.Renderer {
	used = true
	r := render.New(render.Options{Dir: unpacked.Dir()}, nil, nil)
	// Python is unpacked here, and not within a test's time: a slow disk takes a minute for that.
	src := render.Source{Path: "first.sls", Data: []byte("first: {{ 1 + 1 }}")}
	if _, err := r.Render(context.Background(), src, "jinja|yaml", render.Context{}, nil); err != nil {
		panic(err)
	}
	return r
})

// Renderer is the one of this package's tests; its TestMain calls Main.
func Renderer() *render.Renderer { return shared() }

// Main runs the tests, and ends the renderer's workers.
func Main(m *testing.M) {
	code := m.Run()
	if used {
		shared().Close()
	}
	os.Exit(code)
}
