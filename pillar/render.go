package pillar

import (
	"context"

	"clustermaster/wire"
)

// Source is one file to render.
type Source struct {
	Path, SLS, SaltEnv string
	Data               []byte
}

// Context is what a template sees.
type Context struct {
	ID                   string
	Grains, Pillar, Opts wire.Map
	Vars                 wire.Map
}

// Host is what a template asks for while it runs.
type Host interface {
	Call(ctx context.Context, fun string, args []any, kwargs wire.Map) (any, error)
	File(ctx context.Context, saltenv, path string) (data []byte, found bool, err error)
}

// Renderer runs render pipelines. An error's text is Salt's.
type Renderer interface {
	Render(ctx context.Context, src Source, defaultPipe string, c Context, h Host) (any, error)
}
