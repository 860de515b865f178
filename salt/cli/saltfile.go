package cli

import (
	"bufio"
	"fmt"
	"strings"

	"clustermaster/config"
	"clustermaster/value"
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

// saltfile uses a Saltfile's values as defaults for options that were not given.
func (e Env) saltfile(p *parser, v values) error {
	settings, err := config.Saltfile(v.text("saltfile"), p.prog, e.Getenv)
	if err != nil {
		return usageError(err.Error())
	}
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
