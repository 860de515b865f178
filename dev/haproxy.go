package dev

import (
	"fmt"
	"regexp"
	"strings"
)

var serverLine = regexp.MustCompile(`^(\s+server) master(\d+) 192\.0\.2\.\d+(:\d+.*)$`)

// FillHAProxy puts addresses into the text of lb/haproxy.cfg: front for the
// binds, and one server line per host in each back end.
func FillHAProxy(text, front string, hosts []string) string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.Replace(line, "bind *:", "bind "+front+":", 1)
		m := serverLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		switch {
		case m == nil:
			out = append(out, line)
		case m[2] == "1": // the others are dropped: as many lines as there are hosts
			for i, h := range hosts {
				out = append(out, fmt.Sprintf("%s master%d %s%s\n", m[1], i+1, h, m[3]))
			}
		}
	}
	return strings.Join(out, "")
}
