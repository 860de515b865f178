package hosted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"clustermaster/value"
)

// stagedIn is the folder of extension_modules for modules that are not yet switched to. Salt's
// loader does not read it.
const stagedIn = ".staged"

// stages are the unused copies, by the ids of their questions.
type stages struct {
	mu sync.Mutex // also held while folders are switched
	by map[string]stage
}

// stage is a copy of extension_modules that a function of Salt has changed.
type stage struct {
	dir    string
	kinds  []string // folders in which it differs
	fun    string
	kwargs value.Map
}

// Stage runs a function that copies modules (saltutil.sync_*) on a copy of extension_modules, and
// returns its result. Switch then installs the copy; Drop removes it.
func (f *Functions) Stage(ctx context.Context, id, fun string, kwargs value.Map) (any, error) {
	root := f.d.Folders.ExtensionModules
	waiting := filepath.Join(root, stagedIn)
	f.staged.mu.Lock()
	entries, _ := os.ReadDir(waiting)
	for _, e := range entries { // left by a process that has ended
		if _, known := f.staged.by[e.Name()]; !known {
			_ = os.RemoveAll(filepath.Join(waiting, e.Name()))
		}
	}
	if f.staged.by == nil {
		f.staged.by = map[string]stage{}
	}
	s := stage{dir: filepath.Join(waiting, id), fun: fun, kwargs: kwargs}
	f.staged.by[id] = s
	f.staged.mu.Unlock()
	ret, err := f.stage(ctx, root, &s)
	if err != nil {
		f.Drop(id)
		return nil, fmt.Errorf("modules can't be copied beside those of %s: %w", root, err)
	}
	f.staged.mu.Lock()
	f.staged.by[id] = s
	f.staged.mu.Unlock()
	return ret, nil
}

func (f *Functions) stage(ctx context.Context, root string, s *stage) (any, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	if err := copyKinds(root, s.dir); err != nil {
		return nil, err
	}
	before, err := digestsOf(s.dir)
	if err != nil {
		return nil, err
	}
	ret, err := f.run(ctx, s.fun, nil, s.kwargs,
		value.Map{{Key: "extension_modules", Value: s.dir}})
	if err != nil {
		return nil, err
	}
	after, err := digestsOf(s.dir)
	if err != nil {
		return nil, err
	}
	for kind := range before {
		after[kind] = cmp.Or(after[kind], NoExtensions) // Salt removes an empty one
	}
	for kind, digest := range after {
		if digest == cmp.Or(before[kind], NoExtensions) {
			continue
		}
		if err := os.MkdirAll(filepath.Join(s.dir, kind), 0o700); err != nil {
			return nil, err
		}
		s.kinds = append(s.kinds, kind)
	}
	return ret, nil
}

// digestsOf returns the digests of the kinds of modules in a folder.
func digestsOf(dir string) (map[string]string, error) {
	kinds, err := kindsIn(dir)
	out := make(map[string]string, len(kinds))
	for _, kind := range kinds {
		e := NewExtensions(filepath.Join(dir, kind))
		e.Look()
		out[kind] = e.Digest()
	}
	return out, err
}

// kindsIn lists the kinds of modules in a folder. Names that begin with a dot are the site's.
func kindsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var out []string
	for _, e := range entries {
		if name := e.Name(); name[0] != '.' && name != "__pycache__" {
			out = append(out, name)
		}
	}
	return out, err
}

// Switch replaces the present modules by those of a stage, each kind by one rename. If a folder
// can't be renamed, for example because it is a link or a mount point, the function runs again and
// writes there.
func (f *Functions) Switch(ctx context.Context, id string) error {
	f.staged.mu.Lock()
	s, ok := f.staged.by[id]
	if !ok {
		f.staged.mu.Unlock()
		return errors.New("there are no copied modules to switch to: the master was restarted meanwhile")
	}
	var err error
	for _, kind := range s.kinds {
		if err = exchange(filepath.Join(s.dir, kind),
			filepath.Join(f.d.Folders.ExtensionModules, kind)); err != nil {
			break
		}
	}
	f.staged.mu.Unlock()
	f.Drop(id)
	if err != nil {
		f.d.Log.Warn("a folder of modules can't be replaced in one step; its files are written one by one", "err", err)
		_, err = f.run(ctx, s.fun, nil, s.kwargs, nil)
	}
	f.changed()
	return err
}

// Drop removes a stage. An unknown one is not an error.
func (f *Functions) Drop(id string) {
	f.staged.mu.Lock()
	defer f.staged.mu.Unlock()
	s, ok := f.staged.by[id]
	if !ok {
		return
	}
	delete(f.staged.by, id)
	_ = os.RemoveAll(s.dir)
	_ = unix.Rmdir(filepath.Dir(s.dir)) // fails while another stage waits
}

// exchange swaps the folders from and to.
func exchange(from, to string) error {
	info, err := os.Lstat(to)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Rename(from, to)
	}
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder but %s", to, info.Mode().Type())
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the file system can't
		if err = os.Rename(to, from+".before"); err == nil {
			err = os.Rename(from, to)
		}
	}
	return err
}

// copyKinds copies all kinds of modules. One that is a link to a folder is copied as a folder, so
// that Salt's function does not write into the present one. A missing root counts as empty.
func copyKinds(root, to string) error {
	kinds, err := kindsIn(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, kind := range kinds {
		from := filepath.Join(root, kind)
		if dir, err := filepath.EvalSymlinks(from); err == nil {
			from = dir
		}
		err = errors.Join(err, copyTree(from, filepath.Join(to, kind)))
	}
	return err
}

// copyTree copies folders, files and links with their modes and owners, except compiled Python
// files and stages.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "__pycache__" || d.Name() == stagedIn) {
			return fs.SkipDir
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return copyOne(path, filepath.Join(to, rel), info)
	})
}

func copyOne(from, to string, info fs.FileInfo) error {
	var err error
	switch {
	case info.IsDir():
		err = os.Mkdir(to, info.Mode().Perm())
	case info.Mode()&fs.ModeSymlink != 0:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	case info.Mode().IsRegular():
		err = copyFile(from, to, info)
	}
	var st unix.Stat_t
	if err == nil && unix.Lstat(from, &st) == nil {
		_ = os.Lchown(to, int(st.Uid), int(st.Gid)) // only root may give files away
	}
	return err
}

func copyFile(from, to string, info fs.FileInfo) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}
