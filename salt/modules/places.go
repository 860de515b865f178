package modules

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"clustermaster/store/smallfile"
	"clustermaster/value"
)

// placeFunctions are the family timezone, on the master's clock, and the default routes of its
// network.
func placeFunctions() []function {
	date := func(name, format string) function {
		return function{name: "timezone." + name,
			run: func(ctx context.Context, c *call) (any, error) {
				return c.Call(ctx, c.who, "cmd.run", []any{[]any{"date", format}}, nil)
			}}
	}
	return []function{
		date("get_offset", "+%z"), date("get_zonecode", "+%Z"),
		{name: "timezone.get_zone", run: zone},
		{name: "network.default_route", params: []param{opt("family", nil)}, run: defaultRoute},
	}
}

// zone returns the name of the time zone: from timedatectl or, if that is missing, from the files
// that the minion's os_family uses.
func zone(ctx context.Context, c *call) (any, error) {
	program, err := which("timedatectl")
	if err != nil {
		return nil, err
	}
	if program == nil {
		return zoneOfFile("/", c.who.Grains.String("os_family"))
	}
	v, err := c.Call(ctx, c.who, "cmd.run_all", []any{"timedatectl"}, nil)
	if err != nil {
		return nil, err
	}
	said, _ := v.(value.Map)
	if code, _ := said.Get("retcode"); code != int64(0) {
		return nil, fmt.Errorf("timedatectl failed: %s", said.String("stderr"))
	}
	for line := range strings.Lines(said.String("stdout")) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "Time")
		if !ok {
			continue
		}
		rest, ok = strings.CutPrefix(strings.TrimPrefix(rest, " "), "zone:")
		if name := strings.Fields(rest); ok && len(name) > 0 && unicode.IsSpace(rune(rest[0])) {
			return name[0], nil
		}
	}
	return nil,
		fmt.Errorf("Failed to parse timedatectl output: %s\nPlease file an issue with SaltStack",
			said.String("stdout"))
}

func zoneOfFile(root, family string) (any, error) {
	const most = 64 << 10 // bytes
	switch family {
	case "Debian", "Gentoo":
		b, err := smallfile.Read(filepath.Join(root, "etc/timezone"), most)
		if err != nil {
			return nil, fmt.Errorf("Problem reading timezone file /etc/timezone: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	case "RedHat", "Suse":
		b, err := smallfile.Read(filepath.Join(root, "etc/sysconfig/clock"), most)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(b)) {
			if at := strings.LastIndexByte(line, '='); at >= 0 && strings.Contains(line, "ZONE") &&
				!strings.HasPrefix(strings.TrimSpace(line), "#") {
				if name := strings.Trim(strings.TrimRight(line[at+1:], "\n"), `'"`); name != "" {
					return name, nil
				}
				return "UTC", nil
			}
		}
		return nil, errors.New("Unable to get timezone from /etc/sysconfig/clock")
	}
	return nil, errors.New("Unable to get timezone")
}

// route is one line of a routing table.
type route struct{ family, destination, gateway, netmask, flags, device string }

// defaultRoute lists the default routes that netstat reports, or ip if netstat is missing.
func defaultRoute(ctx context.Context, c *call) (any, error) {
	family := c.any("family")
	if family != nil && family != "inet" && family != "inet6" {
		return nil, fmt.Errorf("Invalid address family %s", value.Str(family))
	}
	program, err := which("netstat")
	if err != nil {
		return nil, err
	}
	read := c.netstatRoutes
	if program == nil {
		read = c.ipRoutes
	}
	routes, err := read(ctx)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, r := range routes {
		everywhere := r.destination == "default" || r.destination == "0.0.0.0" &&
			family != "inet6" || r.destination == "::/0" && family != "inet"
		if !everywhere || family != nil && r.family != family {
			continue
		}
		out = append(out, value.Map{
			{Key: "addr_family", Value: r.family}, {Key: "destination", Value: r.destination},
			{Key: "gateway", Value: r.gateway}, {Key: "netmask", Value: r.netmask},
			{Key: "flags", Value: r.flags}, {Key: "interface", Value: r.device},
		})
	}
	return out, nil
}

// table runs a program and returns the words of its lines.
func (c *call) table(ctx context.Context, argv ...string) ([][]string, error) {
	v, err := c.Call(ctx, c.who, "cmd.run_stdout", []any{value.Texts(argv)}, nil)
	if err != nil {
		return nil, err
	}
	var out [][]string
	for line := range strings.Lines(text(v)) {
		out = append(out, strings.Fields(line))
	}
	return out, nil
}

func (c *call) netstatRoutes(ctx context.Context) ([]route, error) {
	const heads = 2 // lines
	four, err := c.table(ctx, "netstat", "-A", "inet", "-rn")
	if err != nil {
		return nil, err
	}
	six, err := c.table(ctx, "netstat", "-A", "inet6", "-rn")
	if err != nil {
		return nil, err
	}
	var out []route
	for _, f := range four[min(heads, len(four)):] {
		if len(f) < 8 {
			return nil, fmt.Errorf("netstat printed a route of %d words", len(f))
		}
		out = append(out, route{"inet", f[0], f[1], f[2], f[3], f[7]})
	}
	for _, f := range six[min(heads, len(six)):] {
		if len(f) == 6 || len(f) == 7 {
			out = append(out, route{"inet6", f[0], f[1], "", f[2], f[len(f)-1]})
		}
	}
	return out, nil
}

// ipRoutes lists only the default routes, because nothing else is needed.
func (c *call) ipRoutes(ctx context.Context) ([]route, error) {
	var out []route
	for _, k := range []struct {
		flag, family, table, destination,
		netmask string
	}{{"-4", "inet", "main", "0.0.0.0", "0.0.0.0"}, {"-6", "inet6", "all", "::/0", ""}} {
		lines, err := c.table(ctx, "ip", k.flag, "route", "show", "table", k.table)
		if err != nil {
			return nil, err
		}
		for _, f := range lines {
			if len(f) == 0 || f[0] != "default" {
				continue
			}
			if len(f) < 4 || f[3] == "dev" && len(f) < 5 {
				return nil, fmt.Errorf("ip printed a route of %d words", len(f))
			}
			r := route{k.family, k.destination, f[2], k.netmask, "UG", ""}
			if f[3] == "dev" {
				r.device = f[4]
			}
			out = append(out, r)
		}
	}
	return out, nil
}
