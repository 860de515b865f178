// Package rendertest has the one renderer that all tests of a package share.
// It is made on first use.
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
	// This unpacks Python outside of a test's time, because a slow disk takes a minute for it.
	src := render.Source{Path: "first.sls", Data: []byte("first: {{ 1 + 1 }}")}
	if _, err := r.Render(context.Background(), src, "jinja|yaml", render.Context{}, nil); err != nil {
		panic(err)
	}
	return r
})

// Renderer returns the renderer. The TestMain of its package must call Main.
func Renderer() *render.Renderer { return shared() }

// Main runs the tests and ends the renderer's workers.
func Main(m *testing.M) {
	code := m.Run()
	if used {
		shared().Close()
	}
	os.Exit(code)
}
