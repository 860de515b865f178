package modules

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"

	"clustermaster/value"
	"clustermaster/value/pyregex"
)

// find is one call of file.find. Of its options name, iname, type, mindepth and maxdepth are built
// in.
type find struct {
	names    []func(string) bool
	kinds    []uint32 // of type, as in st_mode; none: all
	min, max int64    // depths
	hits     []string
}

var findKinds = map[rune]uint32{'b': syscall.S_IFBLK, 'c': syscall.S_IFCHR, 'd': syscall.S_IFDIR,
	'f': syscall.S_IFREG, 'l': syscall.S_IFLNK, 'p': syscall.S_IFIFO, 's': syscall.S_IFSOCK}

// findFiles lists the files at and below the folders that match a glob, sorted.
func findFiles(ctx context.Context, c *call) (any, error) {
	f := &find{max: math.MaxInt64}
	for _, v := range c.more {
		if v == "delete" || v == "print" {
			return nil, outside("file.find with " + text(v) + " is not built in")
		}
	}
	for _, p := range c.kwargs {
		if !f.takes(text(p.Key), p.Value) {
			return nil, outside(fmt.Sprintf("file.find with %s=%s is not built in", text(p.Key),
				value.Repr(p.Value)))
		}
	}
	roots, err := glob(expand(c.text("path")))
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		if err := f.add(root, 0); err != nil {
			return nil, err
		}
		if err := f.below(ctx, root, 1); err != nil {
			return nil, err
		}
	}
	slices.Sort(f.hits)
	return value.Texts(f.hits), nil
}

// takes sets an option, and reports whether it can.
func (f *find) takes(option string, v any) bool {
	s, isText := v.(string)
	n, isNumber := v.(int64)
	switch {
	case strings.HasPrefix(option, "_"):
	case option == "mindepth" && isNumber:
		f.min = n
	case option == "maxdepth" && isNumber:
		f.max = n
	case option == "maxdepth" && v == nil:
	case (option == "name" || option == "iname") && isText && s != "":
		expr := strings.NewReplacer(".", `\.`, "?", ".?", "*", ".*").Replace(s) + "$" // as Salt
		if option == "iname" {
			expr = "(?i)" + expr
		}
		test, ok := pyregex.Start(expr)
		f.names = append(f.names, test)
		return ok
	case option == "type" && isText && s != "":
		for _, letter := range strings.Join(strings.Fields(strings.ReplaceAll(s, ",", "")), "") {
			kind, ok := findKinds[letter]
			if f.kinds = append(f.kinds, kind); !ok {
				return false
			}
		}
		return len(f.kinds) > 0
	default:
		return false
	}
	return true
}

// add adds a path if it fits.
func (f *find) add(p string, depth int64) error {
	name := p[strings.LastIndexByte(p, '/')+1:]
	if depth < f.min || depth > f.max && depth > 0 ||
		slices.ContainsFunc(f.names, func(fits func(string) bool) bool { return !fits(name) }) {
		return nil
	}
	if len(f.kinds) > 0 {
		var st syscall.Stat_t
		if syscall.Stat(p, &st) != nil && syscall.Lstat(p, &st) != nil ||
			!slices.Contains(f.kinds, st.Mode&syscall.S_IFMT) {
			return nil
		}
	}
	if f.hits = append(f.hits, p); len(f.hits) > maxFound {
		return fmt.Errorf("more than %d hits", maxFound)
	}
	return nil
}

// below adds what is in a folder. It follows no links but the folder itself; an unreadable folder
// is empty.
func (f *find) below(ctx context.Context, dir string, depth int64) error {
	if depth > f.max {
		return nil
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p := joined(dir, e.Name())
		if err := f.add(p, depth); err != nil {
			return err
		}
		if e.IsDir() {
			if err := f.below(ctx, p, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
