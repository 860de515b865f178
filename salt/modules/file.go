package modules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"clustermaster/store/smallfile"
	"clustermaster/value"
)

// Bounds of files on the master.
const (
	maxFile  = 64 << 20 // of a file to read
	maxFound = 100_000  // names of one file.find or file.readdir
)

func fileFunctions() []function {
	onPath := func(name string, run func(c *call, path string) (any, error)) function {
		return function{name: name, params: []param{need("path")},
			run: func(_ context.Context, c *call) (any,
				error) {
				return run(c, expand(c.text("path")))
			}}
	}
	ofOwner := func(name string, pick func(*syscall.Stat_t) any) function {
		return function{name: name, params: []param{need("path"), opt("follow_symlinks", true)},
			run: func(_ context.Context, c *call) (any, error) {
				st, err := c.stat(expand(c.text("path")))
				if err != nil {
					return nil, err
				}
				return pick(st), nil
			}}
	}
	return []function{
		{name: "file.read", params: []param{need("path"), opt("binary", false)},
			run: func(_ context.Context, c *call) (any, error) {
				b, err := readFile(expand(c.text("path")))
				if err != nil {
					return nil, err
				}
				if c.is("binary") {
					return b, nil
				}
				return string(b), nil
			}},
		onPath("file.file_exists", func(_ *call, p string) (any, error) {
			info, err := os.Stat(p)
			return err == nil && info.Mode().IsRegular(), nil
		}),
		onPath("file.directory_exists", func(_ *call, p string) (any, error) {
			info, err := os.Stat(p)
			return err == nil && info.IsDir(), nil
		}),
		onPath("file.is_link", func(_ *call, p string) (any, error) {
			info, err := os.Lstat(p)
			return err == nil && info.Mode()&fs.ModeSymlink != 0, nil
		}),
		onPath("file.path_exists_glob", func(_ *call, p string) (any, error) {
			hits, err := glob(p)
			return len(hits) > 0, err
		}),
		{name: "file.readlink", params: []param{need("path"), opt("canonicalize", false)},
			run: func(_ context.Context, c *call) (any, error) {
				p := expand(c.text("path"))
				if !filepath.IsAbs(p) {
					return nil, fmt.Errorf("Path to link must be absolute: %s", p) // Salt's text
				}
				link, err := os.Readlink(p)
				if err != nil {
					return nil, fmt.Errorf("A valid link was not specified: %s", p) // Salt's text
				}
				if c.is("canonicalize") {
					return realPath(p)
				}
				return link, nil
			}},
		{name: "file.access", params: []param{need("path"), need("mode")},
			run: func(_ context.Context, c *call) (any, error) {
				modes := map[string]uint32{"f": 0, "r": 4, "w": 2, "x": 1}
				mode, ok := modes[c.text("mode")]
				if n, isNumber := c.any("mode").(int64); isNumber &&
					(n == 0 || n == 1 || n == 2 || n == 4) {
					mode, ok = uint32(n), true
				}
				if !ok {
					return nil, errors.New("Invalid mode specified.")
				}
				return syscall.Access(expand(c.text("path")), mode) == nil, nil
			}},
		{name: "file.get_hash", params: []param{need("path"), opt("form", "sha256"),
			opt("chunk_size", int64(65536))}, run: hashOfFile},
		{name: "file.get_sum", params: []param{need("path"), opt("form", "sha256")},
			run: func(ctx context.Context, c *call) (any, error) {
				if info, err := os.Stat(expand(c.text("path"))); err != nil || !info.Mode().IsRegular() {
					return "File not found", nil // Salt's answer
				}
				return hashOfFile(ctx, c)
			}},
		onPath("file.basename", func(c *call, _ string) (any, error) {
			p := c.text("path")
			return p[strings.LastIndexByte(p, '/')+1:], nil
		}),
		onPath("file.dirname", func(c *call, _ string) (any, error) {
			p := c.text("path")
			head := p[:strings.LastIndexByte(p, '/')+1]
			if trimmed := strings.TrimRight(head, "/"); trimmed != "" {
				return trimmed, nil
			}
			return head, nil
		}),
		{name: "file.join", params: []param{need("a")}, varArgs: true, varKwargs: true,
			run: func(_ context.Context, c *call) (any, error) {
				joined := ""
				for _, v := range append([]any{c.any("a")}, c.more...) {
					part, ok := v.(string)
					if !ok {
						return nil,
							fmt.Errorf("join() argument must be str, bytes, or os.PathLike object, not %s", value.Repr(v))
					}
					switch {
					case strings.HasPrefix(part, "/"):
						joined = part
					case joined == "" || strings.HasSuffix(joined, "/"):
						joined += part
					default:
						joined += "/" + part
					}
				}
				return joined, nil
			}},
		onPath("file.normpath", func(c *call, _ string) (any, error) {
			p := c.text("path")
			// POSIX leaves the meaning of exactly two slashes open
			if strings.HasPrefix(p, "//") && !strings.HasPrefix(p, "///") {
				return "/" + path.Clean(p), nil
			}
			return path.Clean(p), nil
		}),
		onPath("file.readdir", func(_ *call, p string) (any, error) {
			entries, err := os.ReadDir(p)
			if err != nil || len(entries) > maxFound {
				return nil, fmt.Errorf("A valid path was not specified.: %w", err)
			}
			out := []any{".", ".."}
			for _, e := range entries {
				out = append(out, e.Name())
			}
			return out, nil
		}),
		{name: "file.find", params: []param{need("path")}, varArgs: true, varKwargs: true,
			run: findFiles},
		{name: "file.contains", params: []param{need("path"), need("text")},
			run: func(_ context.Context, c *call) (any, error) {
				b, err := readFile(expand(c.text("path")))
				wanted := strings.TrimFunc(value.Str(c.any("text")), value.IsSpace)
				return err == nil && len(b) > 0 && strings.Contains(string(b), wanted), nil
			}},
		{name: "file.stats", params: []param{need("path"), opt("hash_type", nil),
			opt("follow_symlinks", true)}, run: stats},
		ofOwner("file.get_mode", func(st *syscall.Stat_t) any { return permissions(st.Mode) }),
		ofOwner("file.get_uid", func(st *syscall.Stat_t) any { return int64(st.Uid) }),
		ofOwner("file.get_gid", func(st *syscall.Stat_t) any { return int64(st.Gid) }),
		ofOwner("file.get_user", func(st *syscall.Stat_t) any { return userName(st.Uid) }),
		ofOwner("file.get_group", func(st *syscall.Stat_t) any { return groupName(st.Gid) }),
	}
}

// expand replaces ~ by the home folder.
func expand(p string) string {
	if rest, ok := strings.CutPrefix(p, "~"); ok && (rest == "" || rest[0] == '/') {
		if home, err := os.UserHomeDir(); err == nil {
			return home + rest
		}
	}
	return p
}

// readFile reads a regular file of bounded size.
func readFile(p string) ([]byte, error) { return smallfile.Read(p, maxFile) }

func hashOfFile(_ context.Context, c *call) (any, error) {
	h, err := newHash(c.text("form"))
	if err != nil {
		return nil, err
	}
	b, err := readFile(expand(c.text("path")))
	if err != nil {
		return nil, err
	}
	h.Write(b)
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// stat returns a path's data, or those of a broken link itself.
func (c *call) stat(p string) (*syscall.Stat_t, error) {
	var st syscall.Stat_t
	if c.is("follow_symlinks") && syscall.Stat(p, &st) == nil || syscall.Lstat(p, &st) == nil {
		return &st, nil
	}
	return nil, fmt.Errorf("Path not found: %s", p) // Salt's text
}

// userName returns a user's name, or the id of an unknown user.
func userName(uid uint32) any {
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		return u.Username
	}
	return int64(uid)
}

func groupName(gid uint32) any {
	if g, err := user.LookupGroupId(strconv.FormatUint(uint64(gid), 10)); err == nil {
		return g.Name
	}
	return int64(gid)
}

// maxLinks bounds the links on the way to one path.
const maxLinks = 40

// realPath makes a path absolute and follows all links, also where nothing is.
func realPath(p string) (string, error) {
	var err error
	if !filepath.IsAbs(p) {
		var at string
		at, err = os.Getwd()
		p = at + "/" + p
	}
	real, _ := followed{}.walk("/", p)
	return path.Clean(real), err
}

// followed is where links lead, "" while that is being found.
type followed map[string]string

// walk follows a path from a folder whose own path has no links. Like Python's it goes no further
// than a link that leads back to itself; whole is then false.
func (f followed) walk(at, rest string) (real string, whole bool) {
	if filepath.IsAbs(rest) {
		at = "/"
	}
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		next := filepath.Join(at, name) // also of "..", because at has no links
		link, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		to, known := f[next]
		switch {
		case known && to == "", !known && len(f) == maxLinks:
			return next + "/" + rest, false
		case !known:
			f[next] = ""
			if to, whole = f.walk(at, link); !whole {
				return to + "/" + rest, false
			}
			f[next] = to
		}
		at = to
	}
	return at, true
}

func stats(ctx context.Context, c *call) (any, error) {
	p := expand(c.text("path"))
	st, err := c.stat(p)
	if err != nil {
		return nil, err
	}
	kind := map[uint32]string{syscall.S_IFREG: "file", syscall.S_IFDIR: "dir",
		syscall.S_IFLNK: "link", syscall.S_IFIFO: "pipe", syscall.S_IFSOCK: "socket",
		syscall.S_IFBLK: "block", syscall.S_IFCHR: "char"}
	out := value.Map{
		{Key: "inode", Value: int64(st.Ino)}, {Key: "uid", Value: int64(st.Uid)},
		{Key: "gid", Value: int64(st.Gid)}, {Key: "group", Value: groupName(st.Gid)},
		{Key: "user", Value: userName(st.Uid)},
		{Key: "atime", Value: seconds(st.Atim)}, {Key: "mtime", Value: seconds(st.Mtim)},
		{Key: "ctime", Value: seconds(st.Ctim)},
		{Key: "size", Value: st.Size}, {Key: "mode", Value: permissions(st.Mode)},
	}
	if c.is("hash_type") {
		c.named["form"] = c.any("hash_type")
		sum, err := hashOfFile(ctx, c)
		if err != nil {
			return nil, err
		}
		out = append(out, value.Pair{Key: "sum", Value: sum})
	}
	target, err := filepath.Abs(p)
	if err == nil && c.is("follow_symlinks") {
		target, err = realPath(p)
	}
	return append(out, value.Pair{Key: "type", Value: kind[st.Mode&syscall.S_IFMT]},
		value.Pair{Key: "target", Value: target}), err
}

// permissions returns a mode as four octal digits.
func permissions(mode uint32) string { return fmt.Sprintf("%04o", mode&0o7777) }

func seconds(t syscall.Timespec) float64 { return float64(t.Sec) + float64(1e-9*float64(t.Nsec)) }
