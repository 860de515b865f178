package cli

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"clustermaster/value"
	"clustermaster/value/yaml11"
)

const maxStdinLine = 1 << 20

// fromStdin reads more options and arguments from standard input, one a line.
func (e Env) fromStdin(p *parser, v values, operands []string) (kept, more []string, err error) {
	var lines []string
	s := bufio.NewScanner(e.Stdin)
	s.Buffer(nil, maxStdinLine)
	for s.Scan() {
		lines = append(lines, strings.TrimSuffix(s.Text(), "\r"))
	}
	if err := s.Err(); err != nil {
		return nil, nil,
			usageError(fmt.Sprintf("can't read arguments from standard input: %s", err))
	}
	more, err = p.into(v, lines)
	return operands, more, err
}

// saltfile uses a Saltfile's values as defaults for options that were not given. The file maps a
// command to its options by long name.
func (e Env) saltfile(p *parser, v values) error {
	path := v.text("saltfile")
	if path == "" {
		path = e.Getenv("SALT_SALTFILE")
	}
	named := path != ""
	if !named {
		for _, candidate := range []string{"Saltfile",
			filepath.Join(e.Getenv("HOME"), ".salt", "Saltfile")} {
			if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() {
				path = candidate
				break
			}
		}
	}
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return usageError("'" + path + "' file does not exist.\n")
	}
	doc, err := yaml11.Load(text)
	if err != nil {
		return usageError(fmt.Sprintf("can't read Saltfile %s: %s", path, err))
	}
	commands, _ := doc.(value.Map)
	own, _ := commands.Get(p.prog)
	settings, _ := own.(value.Map)
	for _, s := range settings {
		name, _ := s.Key.(string)
		for i := range p.options {
			o := &p.options[i]
			if o.dest != name || v.given(name) {
				continue
			}
			if on, ok := s.Value.(bool); ok && (o.kind == flagOn || o.kind == flagOff) {
				v.set[name] = on
			} else if o.kind != flagOn && o.kind != flagOff {
				if err := o.store(v, "--"+name, value.Str(s.Value)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
