package modules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"clustermaster/store/smallfile"
	"clustermaster/value"
)

// maxAccounts bounds /etc/passwd and /etc/group, in bytes.
const maxAccounts = 16 << 20

// account is a line of /etc/passwd.
type account struct {
	name, password   string
	uid, gid         int64
	gecos, home, run string
}

// accountGroup is a line of /etc/group.
type accountGroup struct {
	name, password string
	gid            int64
	members        []string
}

func (g accountGroup) info() value.Map {
	return value.Map{{Key: "name", Value: g.name}, {Key: "passwd", Value: g.password},
		{Key: "gid", Value: g.gid}, {Key: "members", Value: value.Texts(g.members)}}
}

// accountFunctions are the families user and group, and the functions of file that map names to
// numbers.
func accountFunctions() []function {
	list := []param{opt("refresh", false), opt("root", nil)}
	return []function{
		{name: "user.info", params: []param{need("name"), opt("root", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				all, err := c.accounts()
				if err != nil {
					return nil, err
				}
				i := slices.IndexFunc(all,
					func(a account) bool { return a.name == value.Str(c.any("name")) })
				if i < 0 {
					return value.Map{}, nil
				}
				in, err := readMemberships()
				return all[i].info(in), err
			}},
		{name: "user.getent", params: list, run: func(_ context.Context, c *call) (any, error) {
			all, err := c.accounts()
			if err != nil {
				return nil, err
			}
			in, err := readMemberships()
			out := make([]any, len(all))
			for i, a := range all {
				out[i] = a.info(in)
			}
			return out, err
		}},
		{name: "user.list_users", params: []param{opt("root", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				all, err := c.accounts()
				names := make([]string, len(all))
				for i, a := range all {
					names[i] = a.name
				}
				slices.Sort(names)
				return value.Texts(names), err
			}},
		{name: "user.list_groups", params: []param{need("name")},
			run: func(_ context.Context, c *call) (any, error) {
				name, err := c.accountName("name")
				if err != nil {
					return nil, err
				}
				in, err := readMemberships()
				return in.of(name), err
			}},
		{name: "user.primary_group", params: []param{need("name")},
			run: func(ctx context.Context, c *call) (any, error) {
				return c.Call(ctx, c.who, "cmd.run",
					[]any{[]any{"id", "-g", "-n", c.any("name")}}, nil)
			}},
		{name: "group.info", params: []param{need("name"), opt("root", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				name, err := c.accountName("name")
				if err != nil {
					return nil, err
				}
				all, err := c.groups()
				if i := slices.IndexFunc(all,
					func(g accountGroup) bool { return g.name == name }); i >= 0 {
					return all[i].info(), err
				}
				return value.Map{}, err
			}},
		{name: "group.getent", params: list, run: func(_ context.Context, c *call) (any, error) {
			all, err := c.groups()
			out := make([]any, len(all))
			for i, g := range all {
				out[i] = g.info()
			}
			return out, err
		}},
		{name: "file.user_to_uid", params: []param{need("user")},
			run: func(_ context.Context, c *call) (any, error) {
				switch v := c.any("user").(type) {
				case nil:
					return int64(os.Geteuid()), nil
				case int64, bool:
					return v, nil
				}
				name, err := c.accountName("user")
				if err != nil {
					return nil, err
				}
				all, err := readAccounts()
				if i := slices.IndexFunc(all,
					func(a account) bool { return a.name == name }); i >= 0 {
					return all[i].uid, err
				}
				return "", err
			}},
		{name: "file.uid_to_user", params: []param{need("uid")},
			run: func(_ context.Context, c *call) (any, error) {
				uid, err := c.systemNumber("uid")
				if err != nil {
					return nil, err
				}
				all, err := readAccounts()
				if i := slices.IndexFunc(all,
					func(a account) bool { return a.uid == uid }); i >= 0 {
					return all[i].name, err
				}
				return c.any("uid"), err
			}},
		{name: "file.group_to_gid", params: []param{need("group")},
			run: func(_ context.Context, c *call) (any, error) { return c.gid("group") }},
		{name: "file.gid_to_group", params: []param{need("gid")},
			run: func(_ context.Context, c *call) (any, error) {
				v := c.any("gid")
				if n, err := c.whole("gid"); err == nil {
					v = n
				} else if _, ok := v.(string); !ok {
					return nil, err
				} else if v, err = c.gid("gid"); err != nil || v == "" {
					return v, err
				}
				all, err := readGroups()
				if i := slices.IndexFunc(all,
					func(g accountGroup) bool { return g.gid == v }); i >= 0 {
					return all[i].name, err
				}
				return v, err
			}},
	}
}

// gid reads an argument that is a group's number, or its name.
func (c *call) gid(param string) (any, error) {
	switch v := c.any(param).(type) {
	case nil:
		return "", nil
	case int64, bool:
		return v, nil
	}
	name, err := c.accountName(param)
	if err != nil {
		return nil, err
	}
	all, err := readGroups()
	if i := slices.IndexFunc(all, func(g accountGroup) bool { return g.name == name }); i >= 0 {
		return all[i].gid, err
	}
	return "", err
}

func (c *call) accountName(param string) (string, error) {
	name, ok := c.any(param).(string)
	if !ok || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%s must be text, not %s", param, value.Repr(c.any(param)))
	}
	return name, nil
}

func (c *call) systemNumber(param string) (int64, error) {
	switch v := c.any(param).(type) {
	case int64, bool:
		n, _ := number(v)
		return n, nil
	}
	return 0, fmt.Errorf("%s should be integer, not %s", param, value.Repr(c.any(param)))
}

// accounts returns the users for a call: the machine's, or those of the passwd file below its root.
func (c *call) accounts() ([]account, error) {
	if c.any("root") == nil {
		return readAccounts()
	}
	var out []account
	err := c.below("etc/passwd", func(line string) error {
		a, ok := parseAccount(line)
		if !ok {
			return fmt.Errorf("%q is not a line of a passwd file", line)
		}
		out = append(out, a)
		return nil
	})
	return out, err
}

// groups returns the groups for a call, in the same way as accounts.
func (c *call) groups() ([]accountGroup, error) {
	if c.any("root") == nil {
		return readGroups()
	}
	var out []accountGroup
	err := c.below("etc/group", func(line string) error {
		if strings.Count(line, ":") < 3 {
			return nil
		}
		g, ok := parseGroup(line)
		if !ok {
			return fmt.Errorf("%q is not a line of a group file", line)
		}
		out = append(out, g)
		return nil
	})
	return out, err
}

// below reads a file below the root of a call, line by line.
func (c *call) below(name string, each func(line string) error) error {
	root, ok := c.any("root").(string)
	if !ok {
		return errors.New("root must be text")
	}
	if root == "" {
		root = "/"
	}
	b, err := smallfile.Read(filepath.Join(root, name), maxAccounts)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if err := each(strings.TrimSpace(line)); err != nil {
			return err
		}
	}
	return nil
}

// readAccounts reads the machine's users. It skips malformed lines, as the C library does.
func readAccounts() ([]account, error) { return readLines("/etc/passwd", parseAccount) }

func readGroups() ([]accountGroup, error) { return readLines("/etc/group", parseGroup) }

func readLines[T any](path string, parse func(string) (T, bool)) ([]T, error) {
	b, err := smallfile.Read(path, maxAccounts)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []T
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if v, ok := parse(line); ok {
			out = append(out, v)
		}
	}
	return out, nil
}

func parseAccount(line string) (account, bool) {
	f := strings.Split(line, ":")
	if len(f) != 7 {
		return account{}, false
	}
	uid, ok := value.ParseInt(f[2])
	gid, too := value.ParseInt(f[3])
	return account{name: f[0], password: f[1], uid: int64(uid), gid: int64(gid), gecos: f[4],
		home: f[5], run: f[6]}, ok && too
}

func parseGroup(line string) (accountGroup, bool) {
	f := strings.Split(line, ":")
	if len(f) != 4 {
		return accountGroup{}, false
	}
	gid, ok := value.ParseInt(f[2])
	g := accountGroup{name: f[0], password: f[1], gid: int64(gid)}
	if f[3] != "" {
		g.members = strings.Split(f[3], ",")
	}
	return g, ok
}

// info returns an account in the form of user.info. Its groups are the machine's, whichever
// root the account comes from.
func (a account) info(in memberships) value.Map {
	more := append(strings.SplitN(a.gecos, ",", 5), "", "", "", "", "")
	return value.Map{
		{Key: "gid", Value: a.gid}, {Key: "groups", Value: in.of(a.name)},
		{Key: "home", Value: a.home}, {Key: "name", Value: a.name},
		{Key: "passwd", Value: a.password},
		{Key: "shell", Value: a.run}, {Key: "uid", Value: a.uid}, {Key: "fullname", Value: more[0]},
		{Key: "roomnumber", Value: more[1]},
		{Key: "workphone", Value: more[2]}, {Key: "homephone", Value: more[3]},
		{Key: "other", Value: more[4]},
	}
}

// memberships are the groups of the machine's users.
type memberships struct {
	main  map[string]int64
	gids  map[string][]int64
	names map[int64][]string
}

func readMemberships() (memberships, error) {
	users, err := readAccounts()
	if err != nil {
		return memberships{}, err
	}
	groups, err := readGroups()
	if err != nil {
		return memberships{}, err
	}
	in := memberships{main: make(map[string]int64), gids: make(map[string][]int64),
		names: make(map[int64][]string)}
	for _, a := range slices.Backward(users) { // the first line of a name counts
		in.main[a.name] = a.gid
	}
	for _, g := range groups {
		in.names[g.gid] = append(in.names[g.gid], g.name)
		for _, name := range g.members {
			in.gids[name] = append(in.gids[name], g.gid)
		}
	}
	return in, nil
}

// of lists the groups of a user, sorted: the user's main group, and every group that
// names the user as a member.
func (in memberships) of(name string) []any {
	var out []string
	if gid, ok := in.main[name]; ok {
		out = append(out, in.names[gid]...)
	}
	for _, gid := range in.gids[name] {
		out = append(out, in.names[gid]...)
	}
	slices.Sort(out)
	return value.Texts(slices.Compact(out))
}
