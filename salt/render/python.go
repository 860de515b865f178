package render

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/kluctl/go-embed-python/python"
)

//go:embed worker/run.py worker/renderworker/*.py
var program embed.FS

//go:embed wheels/any/*.whl
var anyWheels embed.FS

// interpreter is a Python that can run the worker's program.
type interpreter struct {
	exe     string
	flags   []string
	program string
	cache   string // compiled modules of this run
}

// openInterpreter unpacks the files that are missing or damaged.
func openInterpreter(o Options, log *slog.Logger) (*interpreter, error) {
	began := time.Now()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("unpack for render workers: %w", err)
	}
	if err := os.Chmod(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("unpack for render workers: %w", err)
	}
	unlock, err := lockDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("unpack for render workers: %w", err)
	}
	defer unlock()
	files, err := siteFiles()
	if err != nil {
		return nil, err
	}
	site := filepath.Join(o.Dir, "site")
	if err := keep(site, sumFiles(files),
		func(dir string) error { return writeFiles(dir, files) }); err != nil {
		return nil, fmt.Errorf("unpack render worker: %w", err)
	}
	p := &interpreter{exe: o.Python, program: filepath.Join(site, "run.py")}
	// -I keeps out the environment, the current folder and the program's own folder. -S, for the
	// embedded Python alone, keeps out its site; another interpreter finds its own packages there.
	p.flags = []string{"-I", "-X", "utf8"}
	if o.Python == "" {
		home := filepath.Join(o.Dir, "python")
		if err := keep(home, pythonSum, unpackPython); err != nil {
			return nil,
				fmt.Errorf("unpack embedded Python: %w; set render_python to another interpreter", err)
		}
		p.exe = filepath.Join(home, "bin", pythonExe)
		if err := os.Chmod(p.exe, 0o700); err != nil {
			return nil, fmt.Errorf("unpack embedded Python: %w", err)
		}
		p.flags = append(p.flags, "-S")
	}
	// Each run compiles the modules anew, so they need no check.
	removeDead(o.Dir)
	if p.cache, err = os.MkdirTemp(o.Dir, fmt.Sprintf("pycache-%d-", os.Getpid())); err != nil {
		return nil, fmt.Errorf("unpack for render workers: %w", err)
	}
	p.flags = append(p.flags, "-X", "pycache_prefix="+p.cache)
	debug.FreeOSMemory()
	forgetEmbedded()
	log.Info("renderer ready", "path", p.exe, "took", time.Since(began).Round(time.Millisecond))
	return p, nil
}

func (p *interpreter) close() error { return os.RemoveAll(p.cache) }

// lockDir locks a folder, so that no two processes unpack into it at once.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"),
		os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// removeDead removes the files of processes that were killed. The caller holds the folder's lock,
// so no other process unpacks.
func removeDead(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, "unpack-*"))
	caches, _ := filepath.Glob(filepath.Join(dir, "pycache-*"))
	for _, c := range caches {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(c), "pycache-%d-", &pid); err != nil ||
			errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			old = append(old, c)
		}
	}
	for _, o := range old {
		os.RemoveAll(o)
	}
}

// keep makes sure that dir holds the tree with this sum. If not, it builds the tree next to dir
// and moves it into place.
func keep(dir, sum string, build func(dir string) error) error {
	have, err := treeSum(dir)
	if err == nil && have == sum {
		return nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	made := filepath.Join(tmp, filepath.Base(dir))
	if err := build(made); err != nil {
		return err
	}
	if have, err = treeSum(made); err != nil {
		return err
	}
	if have != sum {
		return fmt.Errorf("%s has checksum %s, not %s", made, have, sum)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(made, dir)
}

const (
	pythonExe = "python3.14"
	stdlib    = "lib/python3.14/"
)

// unneeded are parts of the standard library that no template needs.
var unneeded = []string{"config-", "ensurepip", "idlelib", "pydoc_data", "site-packages", "test",
	"tkinter", "turtle", "lib-dynload/_tkinter", "lib-dynload/_test"}

// unpackPython unpacks the embedded Python and removes what no template needs. The library writes
// every link as a copy, 148 MB in all; 40 MB remain. It leaves alone a file that has its size
// already, so the largest that nobody needs are made without contents.
func unpackPython(dir string) error {
	if pythonSum == "" {
		return errors.New("it is not available for this processor")
	}
	if err := writePython(dir); err != nil {
		return err
	}
	return pruneTree(dir)
}

// writePython unpacks all of the embedded Python but the contents of largeUnneeded.
func writePython(dir string) error {
	for name, size := range largeUnneeded {
		if err := makeSparse(filepath.Join(dir, filepath.FromSlash(name)), size); err != nil {
			return err
		}
	}
	_, err := python.NewEmbeddedPythonWithTmpDir(dir, false)
	return err
}

// makeSparse makes a file of a size that takes no space.
func makeSparse(path string, size int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

func pruneTree(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil || needed(filepath.ToSlash(rel)) {
			return err
		}
		return os.Remove(p)
	})
}

func needed(rel string) bool {
	if rel == "bin/"+pythonExe {
		return true
	}
	rest, ok := strings.CutPrefix(rel, stdlib)
	if !ok {
		return false
	}
	for _, u := range unneeded {
		if strings.HasPrefix(rest, u) {
			return false
		}
	}
	return true
}

// siteFiles returns the files of the wheels and of the worker's program.
func siteFiles() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, e := range []struct {
		fs  embed.FS
		dir string
	}{{anyWheels, "wheels/any"}, {archWheels, archDir}} {
		entries, err := e.fs.ReadDir(e.dir)
		if err != nil {
			return nil, fmt.Errorf("read embedded wheels: %w", err)
		}
		for _, entry := range entries {
			if err := readWheel(e.fs, path.Join(e.dir, entry.Name()), out); err != nil {
				return nil, fmt.Errorf("read embedded %s: %w", entry.Name(), err)
			}
		}
	}
	err := fs.WalkDir(program, "worker", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		out[strings.TrimPrefix(p, "worker/")], err = program.ReadFile(p)
		return err
	})
	return out, err
}

// readWheel reads modules and licences from a wheel, but no C sources.
func readWheel(from embed.FS, name string, out map[string][]byte) error {
	b, err := from.ReadFile(name)
	if err != nil {
		return err
	}
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	for _, f := range z.File {
		switch path.Ext(f.Name) {
		case ".py", ".so", ".txt", "":
		default:
			continue
		}
		if !filepath.IsLocal(f.Name) || f.FileInfo().IsDir() {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return err
		}
		out[f.Name] = data
	}
	return nil
}

func writeFiles(dir string, files map[string][]byte) error {
	for name, data := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(p, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// treeSum is the SHA-256 over the names and hashes of all files below dir. Anything but files
// and folders is an error.
func treeSum(dir string) (string, error) {
	sums := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", p)
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		sums[filepath.ToSlash(rel)] = [sha256.Size]byte(h.Sum(nil))
		return nil
	})
	return sumOf(sums), err
}

func sumFiles(files map[string][]byte) string {
	sums := map[string][sha256.Size]byte{}
	for name, data := range files {
		sums[name] = sha256.Sum256(data)
	}
	return sumOf(sums)
}

func sumOf(sums map[string][sha256.Size]byte) string {
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	sort.Strings(names)
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintf(h, "%x  %s\n", sums[name], name)
	}
	return hex.EncodeToString(h.Sum(nil))
}
