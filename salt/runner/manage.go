package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// ManageDeps is what the family manage uses.
type ManageDeps struct {
	Minions Asker
	Keys    Keys   // for not_present, and for down with removekeys
	Version string // of Salt that this master speaks as, such as 3008.3
}

// Manage is the family manage.
func Manage(d ManageDeps) []Function {
	ping := []function.Param{function.Opt("tgt", "*"), function.Opt("tgt_type", "glob"),
		function.Opt("timeout", nil), function.Opt("gather_job_timeout", nil)}
	example := func(fun string) string {
		return "\n\nExample:\n\n    salt-run manage." + fun + "\n    salt-run manage." + fun +
			" tgt=webservers tgt_type=nodegroup timeout=5"
	}
	fs := []Function{
		{
			Name: "manage.status", Params: append([]function.Param{function.Opt("output", true)},
				ping...),
			Doc: "Ping the minions and tell who is up and who is down." + example("status"),
			Run: func(ctx context.Context, c *Call) (any, error) {
				up, down, err := d.ping(ctx, c)
				if err != nil {
					return nil, err
				}
				return value.Map{{Key: "up", Value: value.Texts(up)},
					{Key: "down", Value: value.Texts(down)}}, nil
			},
		},
		{
			Name: "manage.up", Params: ping, Doc: "Ping the minions and list those that answer." +
				example("up"),
			Run: func(ctx context.Context, c *Call) (any, error) {
				up, _, err := d.ping(ctx, c)
				return value.Texts(up), err
			},
		},
		{
			Name: "manage.down", Params: append([]function.Param{function.Opt("removekeys", false)},
				ping...), Run: d.down,
			Doc: "Ping the minions and list those that don't answer. removekeys=True deletes their keys." + example("down"),
		},
		{
			Name: "manage.versions", Run: d.versions,
			Doc: `Ask all minions for their Salt version and compare it with the master's.

Example:

    salt-run manage.versions`,
		},
	}
	for _, name := range []string{"present", "joined", "list_state", "allowed", "alived",
		"reaped"} {
		fs = append(fs, Function{
			Name: "manage." + name, Params: []function.Param{function.Opt("subset", nil),
				function.Opt("show_ip", false)}, Run: d.present,
			Doc: `List the minions that are connected to a master.

subset
    Only these ids.

show_ip : False
    Show the address of each: the first one of its grain ipv4, or of ipv6 if it has no other, that
    leads to other machines.

Example:

    salt-run manage.` + name,
		}, Function{
			Name:   "manage.not_" + strings.TrimPrefix(name, "list_"),
			Params: []function.Param{function.Opt("subset", nil), function.Opt("show_ip", false)},
			Run:    d.notPresent,
			Doc: `List the minions that have an accepted key but are not connected to any master.

Example:

    salt-run manage.not_` + strings.TrimPrefix(name, "list_"),
		})
	}
	for i := range fs {
		if fs[i].Name == "manage.not_state" {
			fs[i].Name = "manage.list_not_state"
			fs[i].Doc = strings.ReplaceAll(fs[i].Doc, "manage.not_state", "manage.list_not_state")
		}
	}
	return fs
}

// ConnectedWheel is the wheel family minions.
func ConnectedWheel(d ManageDeps) []Function {
	return []Function{{
		Name: "minions.connected",
		Doc: `List the minions that are connected to a master.

Example:

    wheel.cmd('minions.connected')`,
		Run: func(ctx context.Context, c *Call) (any, error) {
			found, err := d.connected(ctx, c)
			if err != nil {
				return nil, err
			}
			return value.Texts(slices.Sorted(maps.Keys(found))), nil
		},
	}}
}

// ping sends test.ping to the target and sorts the expected minions into those that answered and
// the others.
func (d ManageDeps) ping(ctx context.Context, c *Call) (up, down []string, err error) {
	timeout, err := c.Seconds("timeout", 0)
	if err != nil {
		return nil, nil, err
	}
	gather, err := c.Seconds("gather_job_timeout", 0)
	if err != nil {
		return nil, nil, err
	}
	answers, err := ask(ctx, c, d.Minions, Ask{Tgt: c.Arg("tgt"), TgtType: c.Text("tgt_type"),
		Fun: "test.ping", Timeout: timeout, Gather: gather})
	if err == nil && answers.Refused != "" {
		err = errors.New(answers.Refused)
	}
	if err != nil {
		return nil, nil, err
	}
	for id := range answers.Returned {
		up = append(up, id)
	}
	for _, id := range answers.Minions {
		if _, ok := answers.Returned[id]; !ok {
			down = append(down, id)
		}
	}
	sort.Strings(up)
	sort.Strings(down)
	return up, down, nil
}

func (d ManageDeps) down(ctx context.Context, c *Call) (any, error) {
	_, down, err := d.ping(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.True("removekeys") && len(down) > 0 {
		change, err := d.Keys.ChangeKeys(ctx, DeleteKeys, down, KeyStates)
		if err != nil {
			return nil, fmt.Errorf("delete keys of minions that are down: %w", err)
		}
		for _, w := range change.Warnings {
			c.Warn(w)
		}
	}
	return value.Texts(down), nil
}

// versions keeps Salt's labels. As in Salt, a minion that returned an error counts as offline.
func (d ManageDeps) versions(ctx context.Context, c *Call) (any, error) {
	answers, err := ask(ctx, c, d.Minions, Ask{Tgt: "*", TgtType: "glob", Fun: "test.version"})
	if err != nil {
		return nil, err
	}
	groups := map[string]value.Map{}
	ids := append([]string(nil), answers.Minions...)
	for id := range answers.Returned {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	for i, id := range ids {
		if i > 0 && ids[i-1] == id {
			continue
		}
		a, ok := answers.Returned[id]
		version, isText := a.Return.(string)
		label, shown := "Minion offline", any(false)
		if ok && a.Retcode == 0 && isText {
			shown = version
			switch cmp := compareVersions(version, d.Version); {
			case cmp < 0:
				label = "Minion requires update"
			case cmp > 0:
				label = "Minion newer than master"
			default:
				label = "Up to date"
			}
		}
		groups[label] = append(groups[label], value.Pair{Key: id, Value: shown})
	}
	ret := value.Map{}
	for _, label := range []string{"Up to date", "Minion requires update",
		"Minion newer than master", "Minion offline"} {
		if len(groups[label]) > 0 {
			ret = append(ret, value.Pair{Key: label, Value: groups[label]})
		}
	}
	return append(ret, value.Pair{Key: "Master", Value: d.Version}), nil
}

func (d ManageDeps) present(ctx context.Context, c *Call) (any, error) {
	found, err := d.connected(ctx, c)
	if err != nil {
		return nil, err
	}
	ids, subset := []string{}, c.Texts("subset")
	for id := range found {
		if len(subset) == 0 || contains(subset, id) {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	if !c.True("show_ip") {
		return value.Texts(ids), nil
	}
	ret := value.Map{}
	for _, id := range ids {
		ret = append(ret, value.Pair{Key: id, Value: found[id]})
	}
	return ret, nil
}

func (d ManageDeps) notPresent(ctx context.Context, c *Call) (any, error) {
	found, err := d.connected(ctx, c)
	if err != nil {
		return nil, err
	}
	lists, note, err := d.Keys.KeyLists(ctx)
	if err != nil {
		return nil, fmt.Errorf("list accepted keys: %w", err)
	}
	if note != "" {
		c.Warn(note)
	}
	absent, subset := []string{}, c.Texts("subset")
	for _, id := range lists[StateAccepted] {
		if _, ok := found[id]; !ok && (len(subset) == 0 || contains(subset, id)) {
			absent = append(absent, id)
		}
	}
	sort.Strings(absent)
	return value.Texts(absent), nil
}

// connected asks the minions and maps those that answer to their addresses, "" without show_ip.
func (d ManageDeps) connected(ctx context.Context, c *Call) (map[string]string, error) {
	ping := Ask{Tgt: "*", TgtType: "glob", Fun: "test.ping"}
	if c.True("show_ip") {
		ping.Fun, ping.Args = "grains.item", []any{"ipv4", "ipv6"}
	}
	answers, err := ask(ctx, c, d.Minions, ping)
	if err == nil && answers.Refused != "" {
		err = errors.New(answers.Refused)
	}
	if err != nil {
		return nil, err
	}
	found := make(map[string]string, len(answers.Returned))
	for id, answer := range answers.Returned {
		grains, _ := answer.Return.(value.Map)
		found[id] = address(grains)
	}
	return found, nil
}

// address is the first address of a minion's grains that leads to other machines, or "".
func address(grains value.Map) string {
	for _, name := range []string{"ipv4", "ipv6"} {
		list, _ := grains.Get(name)
		for _, text := range textList(list) {
			if ip, err := netip.ParseAddr(text); err == nil && ip.IsGlobalUnicast() {
				return text
			}
		}
	}
	return ""
}

func contains(list []string, id string) bool {
	for _, e := range list {
		if e == id {
			return true
		}
	}
	return false
}

// compareVersions orders Salt versions by their numbers: 3006.9 before 3006.28. The text after the
// numbers ("rc1", "+12.gabc") counts only between versions with equal numbers; a release candidate
// comes before its release.
func compareVersions(a, b string) int {
	an, at := versionNumbers(a)
	bn, bt := versionNumbers(b)
	for i := 0; i < max(len(an), len(bn)); i++ {
		x, y := 0, 0
		if i < len(an) {
			x = an[i]
		}
		if i < len(bn) {
			y = bn[i]
		}
		if x != y {
			return x - y
		}
	}
	rank := func(tail string) int {
		switch {
		case tail == "":
			return 0
		case strings.HasPrefix(tail, "+"):
			return 1
		}
		return -1
	}
	return rank(at) - rank(bt)
}

func versionNumbers(v string) (numbers []int, tail string) {
	v = strings.TrimPrefix(strings.TrimSpace(v), "v")
	for v != "" {
		n := 0
		for n < len(v) && n < 9 && v[n] >= '0' && v[n] <= '9' {
			n++
		}
		if n == 0 {
			return numbers, v
		}
		x, _ := strconv.Atoi(v[:n])
		numbers, v = append(numbers, x), v[n:]
		if !strings.HasPrefix(v, ".") {
			return numbers, v
		}
		v = v[1:]
	}
	return numbers, ""
}
