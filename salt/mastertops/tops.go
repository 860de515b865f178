package mastertops

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"clustermaster/salt/render"
	"clustermaster/value"
)

// Request is what a minion asks with.
type Request struct {
	ID           string // confirmed by the channel
	Opts, Grains value.Map
}

// Deps are the parts of the master that Tops uses.
type Deps struct {
	// Output runs a command line and returns what it prints. A command that exits with another
	// code than 0 is an error.
	Output   func(ctx context.Context, command string) (string, error)
	Renderer renderer
	Log      *slog.Logger
	// Other asks a module in Python; the id in the request's options is the confirmed one.
	Other func(ctx context.Context, name string, r Request) (value.Map, error)
	// Overrides reports whether a site's module replaces ext_nodes.
	Overrides func(name string) bool
}

type renderer interface {
	Render(ctx context.Context, src render.Source, pipe string, c render.Context,
		h render.Host) (any, error)
}

// yaml parses a document. An empty one gives nil.
func yaml(ctx context.Context, r renderer, path, text string) (any, error) {
	if strings.HasPrefix(text, "#!") { // a comment here: the file can't choose its renderer
		text = " " + text
	}
	return r.Render(ctx, render.Source{Path: path, Data: []byte(text)}, "yaml",
		render.Context{}, nil)
}

// module is an entry of master_tops. Its answer maps environments to lists of SLS names.
type module struct {
	name string
	ask  func(ctx context.Context, r Request) (value.Map, error)
}

// Tops asks the modules of the option. It is safe for concurrent use.
type Tops struct {
	modules []module
	log     *slog.Logger
}

// New reads the option master_tops, a map from each module to its options. An ext_nodes that is not
// a command is an error.
func New(option value.Map, d Deps) (*Tops, error) {
	t := &Tops{log: d.Log.With("component", "tops")}
	for _, p := range option {
		name, _ := p.Key.(string)
		if name != "ext_nodes" || d.Overrides(name) {
			t.modules = append(t.modules, module{name, other(name, d)})
			continue
		}
		command, ok := p.Value.(string)
		if !ok || command == "" {
			return nil, fmt.Errorf("master_tops: ext_nodes: %v is not a command", p.Value)
		}
		t.modules = append(t.modules, module{name, extNodes(command, d)})
	}
	return t, nil
}

// other asks a module in Python, which looks for the minion's id in its options.
func other(name string, d Deps) func(context.Context, Request) (value.Map, error) {
	return func(ctx context.Context, r Request) (value.Map, error) {
		r.Opts = slices.Clone(r.Opts).Set("id", r.ID)
		return d.Other(ctx, name, r)
	}
}

// Ask maps environments to SLS names for a minion. It joins the lists of several modules.
func (t *Tops) Ask(ctx context.Context, r Request) value.Map {
	all := value.Map{}
	for _, m := range t.modules {
		said, err := m.ask(ctx, r)
		if err != nil {
			t.log.Error("a module of master_tops failed; the minion gets none of its states",
				"module", m.name, "minion", r.ID, "err", err)
			continue
		}
		all = value.Recurse(all, said, true)
	}
	return all
}

// Answer is Ask for a minion that sent these options, which include its grains.
func (t *Tops) Answer(ctx context.Context, id string, opts value.Map) value.Map {
	grains, _ := opts.Get("grains")
	own, _ := grains.(value.Map)
	return t.Ask(ctx, Request{ID: id, Opts: opts, Grains: own})
}
