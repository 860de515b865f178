package master

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"clustermaster/keystore"
	"clustermaster/salt/target"
	"clustermaster/value"
)

// Bounds of the files that autosign reads.
const (
	maxSignFile  = 8 << 20 // bytes
	maxSignFiles = 1024    // grains
)

// autosign decides by the master's files whether an offered key is accepted or rejected without an
// operator.
type autosign struct {
	accept     bool
	sign       *signFile
	reject     *signFile
	stubs      string
	stubAge    time.Duration
	grains     string
	permissive bool
	log        *slog.Logger

	mu     sync.Mutex // guards values
	values map[string]*signFile
}

func newAutosign(o Options, log *slog.Logger) *autosign {
	a := &autosign{
		accept: o.AutoAccept, stubs: o.AutosignDir, stubAge: o.AutosignTimeout,
		grains:     o.AutosignGrainsDir,
		permissive: o.PermissivePkiAccess, log: log, values: make(map[string]*signFile),
	}
	a.sign = &signFile{path: o.AutosignFile, permissive: a.permissive, log: log}
	a.reject = &signFile{path: o.AutorejectFile, rejects: true, permissive: a.permissive, log: log}
	return a
}

// decide decides on one id, in Salt's order. It returns the stub that decided, for the caller to
// delete once the key is stored.
func (a *autosign) decide(id string, grains value.Map, now time.Time) (keystore.Auto, string) {
	a.expire(now)
	stub := a.stub(id)
	rejected, known := a.reject.lines()
	switch {
	case rejected.match(id):
		return keystore.AutoReject, stub
	case !known: // the key waits until the file can be read
		return keystore.AutoNone, stub
	case a.accept, a.sign.matches(id), stub != "", a.grainsMatch(grains):
		return keystore.AutoAccept, stub
	}
	return keystore.AutoNone, stub
}

// stub returns the path of the stub file of an id, which must be valid; "" if there is none.
func (a *autosign) stub(id string) string {
	if a.stubs == "" {
		return ""
	}
	path := filepath.Join(a.stubs, id)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

// expire deletes stubs that are too old.
func (a *autosign) expire(now time.Time) {
	if a.stubs == "" || a.stubAge <= 0 {
		return
	}
	entries, err := os.ReadDir(a.stubs)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > a.stubAge {
			a.consume(filepath.Join(a.stubs, e.Name()))
		}
	}
}

func (a *autosign) consume(path string) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("auto-sign stub cannot be removed, so it would accept again; check the folder's owner", "path", path, "err", err)
	}
}

// grainsMatch compares the offered grains with the files of autosign_grains_dir, one allowed value
// per line. It looks only at names in that folder, so a grain's name can't lead out of it.
func (a *autosign) grainsMatch(grains value.Map) bool {
	if a.grains == "" || len(grains) == 0 {
		return false
	}
	entries, err := os.ReadDir(a.grains)
	if err != nil {
		return false
	}
	for i, e := range entries {
		if i == maxSignFiles {
			break
		}
		val, ok := grains.Get(e.Name())
		if !ok {
			continue
		}
		a.mu.Lock()
		f := a.values[e.Name()]
		if f == nil {
			f = &signFile{path: filepath.Join(a.grains, e.Name()), permissive: a.permissive,
				log: a.log}
			a.values[e.Name()] = f
		}
		a.mu.Unlock()
		if allowed, _ := f.lines(); allowed.has(value.Str(val)) {
			return true
		}
	}
	return false
}

// signFile is a file of lines that is read again when it has changed.
type signFile struct {
	path       string // "" for none
	rejects    bool   // ids of its lines are refused
	permissive bool
	log        *slog.Logger

	mu      sync.Mutex       // guards the rest
	changed syscall.Timespec // ctime, which a change of the owner or the mode moves, too
	size    int64
	cached  *signLines
	failing bool // it could not be read the last time
}

// matches tries each line as the id itself, as a shell pattern, and as a regular expression: for
// the whole id, or of a file that rejects by Salt's wider rule.
func (f *signFile) matches(id string) bool {
	lines, _ := f.lines()
	return lines.match(id)
}

// mayGroupWrite reports whether permissive_pki_access lets a file's group write to it. A master
// that runs as root must be in that group, and not by its main group alone
// (salt.daemons.masterapi, AutoKey.check_permissions).
func mayGroupWrite(info fs.FileInfo) bool {
	if os.Getuid() != 0 {
		return true
	}
	root, err := user.Current()
	if err != nil {
		return false
	}
	groups, err := root.GroupIds()
	gid := strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Gid), 10)
	return err == nil && gid != root.Gid && slices.Contains(groups, gid)
}

// lines returns the file's lines, trimmed, without empty ones and comments; nil for none. It
// ignores a file that other users may write to. While the file can't be read, the lines are none,
// or of a file that rejects those that were read before; known is false if there are none.
func (f *signFile) lines() (lines *signLines, known bool) {
	if f.path == "" {
		return nil, true
	}
	info, err := os.Stat(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, true
	case err != nil:
		return f.unread(err)
	case !info.Mode().IsRegular():
		return nil, true
	}
	stat := info.Sys().(*syscall.Stat_t)
	if stat.Ctim == f.changed && stat.Size == f.size {
		return f.cached, true
	}
	if info.Mode()&0o002 != 0 || info.Mode()&0o020 != 0 && !(f.permissive && mayGroupWrite(info)) {
		f.log.Warn("auto-sign file ignored: others may write to it; chmod go-w it", "path", f.path)
	} else if lines, err = f.read(); err != nil {
		return f.unread(err)
	}
	f.changed, f.size, f.cached, f.failing = stat.Ctim, stat.Size, lines, false
	return lines, true
}

// unread returns the lines of a file that cannot be read. The caller holds mu.
func (f *signFile) unread(err error) (lines *signLines, known bool) {
	if !f.failing {
		f.log.Warn("auto-sign file cannot be read; check its owner", "path", f.path, "err", err)
	}
	f.failing = true
	if !f.rejects { // they may have been taken out
		return nil, false
	}
	return f.cached, f.cached != nil
}

func (f *signFile) read() (*signLines, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := newSignLines(target.FullMatcher)
	if f.rejects {
		lines = newSignLines(target.ListMatcher)
	}
	in := bufio.NewScanner(io.LimitReader(file, maxSignFile))
	in.Buffer(nil, maxSignFile+1)
	for in.Scan() {
		if line := strings.TrimSpace(in.Text()); line != "" && !strings.HasPrefix(line, "#") {
			lines.add(line)
		}
	}
	return lines, in.Err()
}
