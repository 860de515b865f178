package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// noUserError is a user that the system does not know.
type noUserError struct{ name string }

func (e *noUserError) Error() string {
	return fmt.Sprintf("Failed to prepare the Salt environment for user %s. The user is not available.", e.name)
}

// identity is the user that the master runs as; same if that is the present user.
type identity struct {
	uid, gid   int
	groups     []int // with gid; nil if same
	same       bool
	name, home string
}

func lookupUser(name string) (identity, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return identity{}, &noUserError{name}
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	id := identity{uid: uid, gid: gid, same: uid == os.Geteuid(), name: u.Username, home: u.HomeDir}
	if id.same {
		return id, nil
	}
	if os.Geteuid() != 0 {
		return id, fmt.Errorf("run as user %s: only root can; start salt-master as that user", name)
	}
	all, err := u.GroupIds()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, fmt.Errorf("read groups of user %s: %w", name, err)
	}
	id.groups = []int{gid}
	for _, text := range all {
		if group, err := strconv.Atoi(text); err == nil && group != gid {
			id.groups = append(id.groups, group)
		}
	}
	return id, nil
}

// become replaces root's rights and groups by the user's. What runs below finds the user's home, as
// with Salt, and not root's.
func (id identity) become() error {
	if id.same {
		return nil
	}
	for _, step := range []func() error{
		func() error { return syscall.Setgroups(id.groups) },
		func() error { return syscall.Setgid(id.gid) },
		func() error { return syscall.Setuid(id.uid) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("become the master's user: %w", err)
		}
	}
	for name, value := range map[string]string{"HOME": id.home, "USER": id.name,
		"LOGNAME": id.name} {
		if _, set := os.LookupEnv(name); set {
			if err := os.Setenv(name, value); err != nil {
				return fmt.Errorf("become the master's user: %w", err)
			}
		}
	}
	return nil
}
