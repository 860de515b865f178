package modules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"clustermaster/store/smallfile"
	"clustermaster/value"
)

// maxShells bounds /etc/shells, in bytes.
const maxShells = 1 << 20

// programFunctions are the functions of cmd that find programs.
func programFunctions() []function {
	return []function{
		{name: "cmd.has_exec", params: []param{need("cmd")},
			run: func(_ context.Context, c *call) (any, error) {
				p, err := which(c.any("cmd"))
				return p != nil, err
			}},
		{name: "cmd.which", params: []param{need("cmd")},
			run: func(_ context.Context, c *call) (any, error) { return which(c.any("cmd")) }},
		{name: "cmd.which_bin", params: []param{need("cmds")},
			run: func(_ context.Context, c *call) (any, error) {
				var names []any
				switch v := c.any("cmds").(type) {
				case string:
					names = []any{v}
				case []any:
					names = v
				case value.Map:
					names = keys(v)
				}
				for _, name := range names {
					if p, err := which(name); p != nil || err != nil {
						return p, err
					}
				}
				return nil, nil
			}},
		{name: "cmd.shells", run: func(context.Context, *call) (any, error) {
			b, err := smallfile.Read("/etc/shells", maxShells)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			out := []any{}
			for line := range strings.Lines(string(b)) {
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
					out = append(out, line)
				}
			}
			return out, nil
		}},
	}
}

// moreFolders are the folders besides PATH in which Salt looks for programs.
var moreFolders = []string{"/sbin", "/bin", "/usr/sbin", "/usr/bin", "/usr/local/sbin",
	"/usr/local/bin"}

// which returns the path of a program, or nil.
func which(v any) (any, error) {
	if !value.Truth(v) {
		return nil, nil
	}
	name, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("a program's name must be text, not %s", value.Repr(v))
	}
	if runs(name) {
		return name, nil
	}
	for _, dir := range append(strings.Split(os.Getenv("PATH"), ":"), moreFolders...) {
		if p := path.Join(dir, name); runs(p) {
			return p, nil
		}
	}
	return nil, nil
}

func runs(p string) bool {
	const execute = 1
	info, err := os.Stat(p)
	return err == nil && info.Mode().IsRegular() && syscall.Access(p, execute) == nil
}
