package modules

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/value"
)

// jinjaFunctions return the definitions in files from file_roots.
func jinjaFunctions() []function {
	imports := func(name, tag string) function {
		return function{name: "jinja." + name, params: []param{need("path")},
			run: func(ctx context.Context, c *call) (any, error) {
				return c.defined(ctx,
					fmt.Sprintf("{%% %s \"%s\" as imported %%}\n{{ imported | tojson }}\n", tag,
						value.Str(c.any("path"))))
			}}
	}
	return []function{
		imports("import_yaml", "import_yaml"), imports("import_json", "import_json"),
		{name: "jinja.load_map", params: []param{need("path"), need("value")},
			run: func(ctx context.Context, c *call) (any, error) {
				name := value.Str(c.any("value"))
				return c.defined(ctx,
					fmt.Sprintf("{%% from \"%s\" import %s with context %%}\n{{ %s | tojson }}\n",
						value.Str(c.any("path")), name, name))
			}},
	}
}

// defined renders a template that prints one value as JSON.
func (c *call) defined(ctx context.Context, template string) (any, error) {
	if c.deps.Render == nil {
		return nil, errors.New("no renderer is available here")
	}
	pipe := c.who.Opts.String("renderer")
	if pipe == "" {
		pipe = "jinja|yaml"
	}
	return c.deps.Render(ctx, c.who, "", template, pipe, nil)
}
