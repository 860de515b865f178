package modules

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"clustermaster/value"
)

// identity is the user and group of a command.
type identity struct {
	user       *user.User          // nil: the master's own
	credential *syscall.Credential // nil: the master's own
}

// identity returns the identity in the arguments runas and group.
func (c *call) identity() (identity, error) { return runAs(c.text("runas"), c.text("group")) }

// runAs returns a user's identity with all its groups; a given group replaces the main one. ""
// means the master's own.
func runAs(name, group string) (identity, error) {
	if name == "" && group == "" {
		return identity{}, nil
	}
	var as identity
	who := &syscall.Credential{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()),
		NoSetGroups: name == ""}
	if name != "" {
		u, err := user.Lookup(name)
		if err != nil {
			return identity{}, fmt.Errorf("User '%s' is not available",
				name) // Salt's text
		}
		if who.Uid, err = systemID(u.Uid); err != nil {
			return identity{}, fmt.Errorf("run as %q: %w", name, err)
		}
		if who.Gid, err = systemID(u.Gid); err != nil {
			return identity{}, fmt.Errorf("run as %q: %w", name, err)
		}
		all, err := u.GroupIds()
		if err != nil {
			return identity{}, fmt.Errorf("groups of %q: %w", name, err)
		}
		for _, text := range all {
			id, err := systemID(text)
			if err != nil {
				return identity{}, fmt.Errorf("groups of %q: %w", name, err)
			}
			who.Groups = append(who.Groups, id)
		}
		as.user = u
	}
	if group != "" {
		g, err := user.LookupGroup(group)
		if err != nil {
			return identity{}, fmt.Errorf("Group '%s' is not available",
				group) // Salt's text
		}
		if who.Gid, err = systemID(g.Gid); err != nil {
			return identity{}, fmt.Errorf("run in group %q: %w", group, err)
		}
	}
	as.credential = who
	return as, nil
}

func systemID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	return uint32(id), err
}

// home returns the working folder of a command that names none: the user's home, or /
// if the user can't read it.
func (as identity) home() string {
	dir := ""
	if as.user != nil {
		dir = as.user.HomeDir
	} else if own, err := os.UserHomeDir(); err == nil {
		dir = own
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return "/"
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && as.credential != nil &&
		!enters(st, as.credential) {
		return "/"
	}
	return dir
}

// enters reports whether a user may read and enter a folder.
func enters(st *syscall.Stat_t, who *syscall.Credential) bool {
	const readAndEnter = 0o5
	member := st.Gid == who.Gid
	for _, g := range who.Groups {
		member = member || g == st.Gid
	}
	switch {
	case who.Uid == 0:
		return true
	case st.Uid == who.Uid:
		return st.Mode>>6&readAndEnter == readAndEnter
	case member:
		return st.Mode>>3&readAndEnter == readAndEnter
	}
	return st.Mode&readAndEnter == readAndEnter
}

// variables are the variables that replace the master's own in a command for another user.
func (as identity) variables() value.Map {
	if as.user == nil {
		return nil
	}
	return value.Map{
		{Key: "USER", Value: as.user.Username}, {Key: "LOGNAME", Value: as.user.Username},
		{Key: "HOME", Value: as.user.HomeDir},
	}
}
