// Package lb carries the balancer's configuration that the tests run.
//
// Lives here: haproxy.cfg, and the places in it that a site fills in.
// Does not: run a balancer.
package lb

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

// HAProxy is haproxy.cfg as it is shipped, with its placeholders.
//
//go:embed haproxy.cfg
var HAProxy string

// Server is a master as the balancer knows it.
type Server struct {
	Name string
	Addr string // IP address or host name, without a port
}

var (
	firstServer = regexp.MustCompile(`^(\s*server )master1(\S*) 192\.0\.2\.11(:\d+.*)$`)
	otherServer = regexp.MustCompile(`^\s*server master[23]\S* 192\.0\.2\.1[23]:`)
)

var ofRoot = regexp.MustCompile(`(?m)^    # Started by root, (?:.+\n)+\n`)

// WithoutRoot removes from a shipped file what only root's HAProxy can follow: user, group, chroot
// and the socket beside them.
func WithoutRoot(text string) string { return ofRoot.ReplaceAllString(text, "") }

// FillIn puts the masters into text, which is HAProxy or has its placeholders, and bind as the
// address on which minions connect; "*" is all addresses. Error: a back end without a placeholder,
// or not two binds.
func FillIn(text, bind string, masters []Server) (string, error) {
	var out strings.Builder
	backEnds, filled, binds := 0, make(map[int]bool), 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "backend ") {
			backEnds++
		}
		switch m := firstServer.FindStringSubmatch(strings.TrimSuffix(line, "\n")); {
		case m != nil:
			filled[backEnds] = true
			for _, s := range masters {
				fmt.Fprintf(&out, "%s%s%s %s%s\n", m[1], s.Name, m[2], Bracketed(s.Addr),
					strings.Replace(m[3], "/master1", "/"+s.Name, 1))
			}
		case otherServer.MatchString(line):
		case strings.HasPrefix(strings.TrimSpace(line), "bind *:"):
			binds++
			out.WriteString(strings.Replace(line, "*", Bracketed(bind), 1))
		default:
			out.WriteString(line)
		}
	}
	if len(filled) < 2 || len(filled) != backEnds || binds != 2 {
		return "",
			fmt.Errorf("the balancer's configuration has %d back ends, of which %d can be filled in, and %d binds of 2", backEnds, len(filled), binds)
	}
	return out.String(), nil
}

// Bracketed puts an IPv6 address into brackets, for a port after it.
func Bracketed(addr string) string {
	if strings.Contains(addr, ":") {
		return "[" + addr + "]"
	}
	return addr
}
