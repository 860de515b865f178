package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"clustermaster/config"
	"clustermaster/config/saltlog"
)

// openFolder is the mode of folders that others pass through, whatever the umask.
const openFolder = 0o755

// tree is a folder of the master's user, with folders below it that have mode 0700.
type tree struct {
	option, path string
	mode         os.FileMode
	below        []string
	keep         func(path string) bool // leaves the owner of an entry as it is; nil: of none
	shallow      func(path string) bool // leaves all below a folder as it is; nil: of none
}

// treesOf lists the folders that a master writes to, except the one of its log.
func treesOf(o *config.Options) []tree {
	states := []string{"minions", "minions_pre", "minions_rejected", "minions_denied",
		"minions_autosign"}
	list := []tree{
		{option: "pki_dir", path: o.PkiDir, mode: 0o700, below: states},
		{option: "cachedir", path: o.CacheDir, mode: openFolder,
			below: []string{filepath.Base(o.DataDir()), "proc"}, // Salt's salt-run notes its runs there
			// Keys of users, .USER_key, belong to these users.
			keep: func(p string) bool { return !strings.Contains(p, "/") && p[0] == '.' && p != "." },
			// Salt's jobs may be millions of files. New ones go below jobs/xy.
			shallow: func(p string) bool { return path.Dir(p) == "jobs" }},
		{option: "sock_dir", path: o.SockDir, mode: openFolder},
	}
	if o.ClusterPkiDir != "" {
		list[0].below = nil
		list = append(list, tree{option: "cluster_pki_dir", path: o.ClusterPkiDir, mode: 0o700,
			below: states})
	}
	return list
}

// prepare makes the folders that a master writes to. If root starts the master of another user, it
// gives this user the folders with all in them, and makes its log file and pidfile: the user can't.
// It follows no link of that user.
func prepare(o *config.Options, id identity) error {
	trees := treesOf(o)
	for _, t := range trees {
		if err := t.make(); err != nil {
			return fmt.Errorf("%s: %w", t.option, err)
		}
	}
	if o.LogFile != "" && !saltlog.IsSyslog(o.LogFile) {
		if err := makeFolder(filepath.Dir(o.LogFile), openFolder); err != nil {
			return fmt.Errorf("log_file: %w", err)
		}
	}
	if id.same {
		return nil
	}
	for _, t := range trees {
		if err := t.give(id, o.PermissivePkiAccess); err != nil {
			return fmt.Errorf("%s: give it to the master's user: %w", t.option, err)
		}
	}
	if o.LogFile != "" && !saltlog.IsSyslog(o.LogFile) {
		if err := giveFile(o.LogFile, 0o640, id); err != nil {
			return fmt.Errorf("log_file: %w", err)
		}
	}
	_ = giveFile(o.PidFile, 0o644, id) // writePidfile meets the same obstacle, which ends no start
	return nil
}

// reachable is an error if the present user can't enter a folder that the master writes to.
func reachable(o *config.Options) error {
	for _, t := range treesOf(o) {
		if _, err := os.Stat(t.path + "/."); err != nil {
			return fmt.Errorf("%s: user %s can't enter it: %w; let others enter the folders above (mode 0755)",
				t.option, o.User, err)
		}
	}
	return nil
}

// closePki leaves the folders of keys to the present user, as Salt does: others who may write there
// accept minions. The user's group may read.
func closePki(o *config.Options, log *slog.Logger) {
	const all = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	for _, t := range treesOf(o) {
		if t.mode != 0o700 {
			continue
		}
		info, err := os.Stat(t.path)
		if err == nil && info.Mode()&all != 0o700 && info.Mode()&all != 0o750 {
			err = os.Chmod(t.path, t.mode)
		}
		if err != nil {
			log.Log(context.Background(), saltlog.LevelCritical,
				"others may change keys: give the folder to the master's user, or the mode 0700",
				"option", t.option, "err", err)
		}
	}
}

// make makes the folder and those below it, unless they exist.
func (t tree) make() error {
	if err := makeFolder(t.path, t.mode); err != nil {
		return err
	}
	for _, name := range t.below {
		// An existing link stays, wherever it leads.
		err := os.Mkdir(filepath.Join(t.path, name), 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// makeFolder makes a folder and those above it, unless it exists.
func makeFolder(dir string, mode os.FileMode) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if up := filepath.Dir(dir); up != dir {
		if err := makeFolder(up, openFolder); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, mode); err != nil {
		return err
	}
	return os.Chmod(dir, mode) // the umask took bits away
}

// give makes the user the owner of the folder and of all in it but links, also hard ones. Groups
// stay if keepGroups. Entries that can't be given stay, as with Salt: their first use fails and
// says so.
func (t tree) give(id identity, keepGroups bool) error {
	if err := noLinkOf(id.uid, t.path); err != nil {
		return err
	}
	root, err := os.OpenRoot(t.path)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if p == "." {
				return err
			}
			return nil
		}
		if d.Type()&fs.ModeSymlink != 0 || t.keep != nil && t.keep(p) {
			return nil
		}
		if err := giveEntry(root, p, id, keepGroups); err != nil && p == "." {
			return err
		}
		if d.IsDir() && t.shallow != nil && t.shallow(p) {
			return fs.SkipDir
		}
		return nil
	})
}

// giveEntry makes the user the owner of an entry, unless it is a link or has further names: these
// may be any file of this disk. It holds the entry open, because the user may swap names meanwhile.
func giveEntry(root *os.Root, name string, id identity, keepGroup bool) error {
	f, err := root.OpenFile(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Mode()&fs.ModeSymlink != 0 || info.Mode().IsRegular() && !onlyName(info) {
		return err
	}
	uid, gid := ownerOf(info)
	to := id.gid
	if keepGroup {
		to = gid
	}
	if uid == id.uid && gid == to {
		return nil
	}
	return unix.Fchownat(int(f.Fd()), "", id.uid, to, unix.AT_EMPTY_PATH)
}

// giveFile makes the user the owner of a file, which it makes if there is none. Links, devices and
// the like stay: the user opens them with its own rights.
func giveFile(file string, mode os.FileMode, id identity) error {
	dir := filepath.Dir(file)
	if err := makeFolder(dir, openFolder); err != nil {
		return err
	}
	if err := noLinkOf(id.uid, dir); err != nil {
		return err
	}
	if info, err := os.Lstat(file); err == nil && !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if uid, _ := ownerOf(info); uid == id.uid || !onlyName(info) {
		return nil
	}
	return f.Chown(id.uid, -1)
}

// noLinkOf is an error if the user made a link on the way to dir: it could lead root anywhere.
func noLinkOf(uid int, dir string) error {
	for p := dir; p != filepath.Dir(p); p = filepath.Dir(p) {
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		if owner, _ := ownerOf(info); info.Mode()&fs.ModeSymlink != 0 && owner == uid {
			return fmt.Errorf("%s is a link of the master's user; let root make it", p)
		}
	}
	return nil
}

func ownerOf(info fs.FileInfo) (uid, gid int) {
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid)
}

// onlyName reports whether the file is a regular one without other hard links.
func onlyName(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Sys().(*syscall.Stat_t).Nlink == 1
}

func writePidfile(path string) error {
	if err := makeFolder(filepath.Dir(path), openFolder); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o644)
}

// removePidfile removes the file only if it still names this process. A user that may not remove it
// from root's folder empties it.
func removePidfile(path string) {
	if b, err := os.ReadFile(path); err == nil && string(b) == strconv.Itoa(os.Getpid()) {
		if os.Remove(path) != nil {
			os.Truncate(path, 0)
		}
	}
}
