package userkeys

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// User is somebody on this master's machine who has a key.
type User struct {
	Name string
	UID  int // -1: the system does not know him
}

// Wanted says who has keys.
type Wanted struct {
	Master  string                 // the master's user
	Named   []string               // users and patterns of publisher_acl
	Matches func(user string) bool // whether a pattern of publisher_acl means a user
	Verify  bool                   // client_acl_verify: only users that the system knows
}

// OfSystem lists who has a key on this machine, sorted by name.
func OfSystem(w Wanted) ([]User, error) {
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return nil, fmt.Errorf("read users of the system: %w", err)
	}
	return Users(string(passwd), w), nil
}

// Users lists who has a key, sorted by name: as salt.daemons.masterapi, Salt 3008. passwd is the
// content of /etc/passwd, which is all that is known of the system's users.
func Users(passwd string, w Wanted) []User {
	system := accounts(passwd)
	uids := make(map[string]int)
	add := func(name string, must bool) {
		uid, known := system[name]
		switch {
		case !fileName(name), must && !known:
			return
		case !known:
			uid = -1
		}
		uids[name] = uid
	}
	add(w.Master, false)
	for _, name := range w.Named {
		add(name, w.Verify)
	}
	if w.Verify {
		for name := range system {
			if w.Matches(name) {
				add(name, true)
			}
		}
	}
	out := make([]User, 0, len(uids))
	for name, uid := range uids {
		out = append(out, User{name, uid})
	}
	slices.SortFunc(out, func(a, b User) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// accounts reads names and numbers of users.
func accounts(passwd string) map[string]int {
	out := make(map[string]int)
	for line := range strings.Lines(passwd) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 3 || fields[0] == "" || fields[0][0] == '#' {
			continue
		}
		if uid, err := strconv.Atoi(fields[2]); err == nil && uid >= 0 {
			if _, twice := out[fields[0]]; !twice {
				out[fields[0]] = uid
			}
		}
	}
	return out
}

// maxName leaves room for what stands around a name in that of its file.
const maxName = 240

// fileName reports whether a user's name can be part of the name of his file.
func fileName(user string) bool {
	return user != "" && len(user) <= maxName && !strings.ContainsAny(user, "/\x00")
}
