package config

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// Files lists the files of the configuration that were read.
func (o *Options) Files() []string { return o.files }

// Unreadable says which files of the configuration the option user can't read. The master starts
// all the same, as root; as that user it and the Python host read them again.
func (o *Options) Unreadable() (list []string) {
	u, err := user.Lookup(o.User)
	if err != nil || u.Uid == "0" {
		return nil
	}
	groups, err := u.GroupIds()
	if err != nil {
		groups = []string{u.Gid}
	}
	group := u.Gid
	if g, err := user.LookupGroupId(u.Gid); err == nil {
		group = g.Name
	}
	for _, file := range o.files {
		remedy := fmt.Sprintf("chgrp %s %s && chmod 0640 %[2]s", group, file)
		real, err := filepath.EvalSymlinks(file)
		if err != nil {
			continue // it went meanwhile
		}
		closed := real
		if may(u.Uid, groups, real, 4) {
			closed = ""
		}
		for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
			if !may(u.Uid, groups, dir, 1) {
				closed, remedy = dir, "let it enter "+dir
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
		if closed != "" {
			list = append(list, fmt.Sprintf("%s: the master's user %s can't read it: modules in Python fail, and "+
				"a reload is refused; %s", file, o.User, remedy))
		}
	}
	return list
}

// may reports whether the mode of a file lets a user read (4), write (2) or enter (1) it.
func may(uid string, groups []string, path string, right os.FileMode) bool {
	info, err := os.Stat(path)
	if err != nil {
		return true // unknown
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	switch {
	case strconv.FormatUint(uint64(owner.Uid), 10) == uid:
		right <<= 6
	case slices.Contains(groups, strconv.FormatUint(uint64(owner.Gid), 10)):
		right <<= 3
	}
	return info.Mode().Perm()&right != 0
}
