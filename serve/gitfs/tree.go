package gitfs

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of trees.
const (
	maxEntries  = 1 << 20 // of one environment
	maxDepth    = 128     // nested folders
	maxLinks    = 100     // links that lead to links
	maxLinkText = 4096
	maxListed   = 128 << 20 // bytes of the names and the texts of links of one environment
)

// Modes of tree entries.
const (
	modeFile   = 0o100000
	modeLink   = 0o120000
	modeFolder = 0o040000
	modeMask   = 0o170000
)

// node is an entry of a tree.
type node struct {
	mode uint32
	id   string // hexadecimal
}

func (n node) is(kind uint32) bool { return n.mode&modeMask == kind }

// safeName refuses names that a file server must not pass on: they lead elsewhere, or are git's
// own.
func safeName(name string) bool {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00\n") ||
		!utf8.ValidString(name) {
		return false
	}
	return !strings.EqualFold(name, ".git")
}

// tree is a folder of a repository: its entries in git's encoding, and their offsets in the order
// of their names.
type tree struct {
	raw    []byte
	order  []uint32
	idSize int
}

// newTree checks the entries of a tree. It does not rely on their order.
func newTree(raw []byte, idSize int) (*tree, error) {
	t := &tree{raw: raw, idSize: idSize}
	for at := 0; at < len(raw); {
		sp := bytes.IndexByte(raw[at:], ' ')
		if sp < 1 || sp > 8 {
			return nil, errDamaged
		}
		nul := bytes.IndexByte(raw[at+sp:], 0)
		if nul < 0 || len(raw) < at+sp+nul+1+idSize {
			return nil, errDamaged
		}
		t.order = append(t.order, uint32(at))
		at += sp + nul + 1 + idSize
	}
	slices.SortStableFunc(t.order, func(a, b uint32) int { return bytes.Compare(t.name(a), t.name(b)) })
	t.order = slices.Clip(t.order)
	return t, nil
}

// name returns the name of the entry at an offset.
func (t *tree) name(at uint32) []byte {
	_, rest, _ := bytes.Cut(t.raw[at:min(int(at)+9, len(t.raw))], []byte(" "))
	from := int(at) + min(9, len(t.raw)-int(at)) - len(rest)
	return t.raw[from : from+bytes.IndexByte(t.raw[from:], 0)]
}

// entry finds an entry, the first with that name; the zero value if there is none.
func (t *tree) entry(name string) (node, error) {
	i, found := slices.BinarySearchFunc(t.order, []byte(name),
		func(at uint32, name []byte) int { return bytes.Compare(t.name(at), name) })
	if !found {
		return node{}, nil
	}
	var n node
	err := entries(t.raw[t.order[i]:], t.idSize, func(_ string, e node) bool { n = e; return false })
	return n, err
}

// tree reads a tree, or takes it from the cache.
func (m *mirror) tree(ctx context.Context, id string) (*tree, error) {
	if t, ok := m.caches.trees.get(id); ok {
		return t, nil
	}
	_, raw, err := m.whole(ctx, id, "tree", maxTree)
	if err != nil {
		return nil, m.expected(id, err)
	}
	t, err := newTree(raw, len(id)/2)
	if err != nil {
		return nil, err
	}
	m.caches.trees.put(id, t, len(raw)+4*len(t.order)+160)
	return t, nil
}

// entries calls fn with each entry of a tree until it returns false.
func entries(raw []byte, idSize int, fn func(name string, n node) bool) error {
	for len(raw) > 0 {
		sp := bytes.IndexByte(raw, ' ')
		if sp < 1 || sp > 8 {
			return errDamaged
		}
		mode, err := strconv.ParseUint(string(raw[:sp]), 8, 32)
		nul := bytes.IndexByte(raw[sp:], 0)
		if err != nil || nul < 0 || len(raw) < sp+nul+1+idSize {
			return errDamaged
		}
		nul += sp
		id := hex.EncodeToString(raw[nul+1 : nul+1+idSize])
		if !fn(string(raw[sp+1:nul]), node{uint32(mode), id}) {
			return nil
		}
		raw = raw[nul+1+idSize:]
	}
	return nil
}

var errDamaged = errors.New("a tree is damaged")

// commitTree returns the tree of a commit, and the commit's full id.
func (m *mirror) commitTree(ctx context.Context, name string) (commit, tree string, err error) {
	commit, raw, err := m.whole(ctx, name+"^{commit}", "commit", maxTree)
	if err != nil {
		return "", "", err
	}
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	id, ok := bytes.CutPrefix(line, []byte("tree "))
	if !ok {
		return "", "", fmt.Errorf("commit %s has no tree", commit)
	}
	return commit, string(id), nil
}

// at finds the entry at a clean relative path below a tree; "." is the tree itself.
func (m *mirror) at(ctx context.Context, tree, rel string) (node, error) {
	n := node{modeFolder, tree}
	if rel == "." || rel == "" {
		return n, nil
	}
	depth := 0
	for name := range strings.SplitSeq(rel, "/") {
		if depth++; !n.is(modeFolder) || !safeName(name) || depth > maxDepth {
			n = node{}
			break
		}
		t, err := m.tree(ctx, n.id)
		if err != nil {
			return node{}, err
		}
		if n, err = t.entry(name); err != nil {
			return node{}, err
		}
	}
	if n.id == "" {
		return node{}, errMissing
	}
	return n, nil
}

// walked is one entry in a walk.
type walked struct {
	path string
	node
}

// walk calls fn with all entries below a tree. It counts and skips unsafe names, and skips
// submodules.
func (m *mirror) walk(ctx context.Context, tree string, fn func(walked) error) (unsafe int,
	err error) {
	n := 0
	var into func(id, prefix string, depth int) error
	into = func(id, prefix string, depth int) error {
		if depth > maxDepth {
			return fmt.Errorf("folders are more than %d deep", maxDepth)
		}
		t, err := m.tree(ctx, id)
		if err != nil {
			return err
		}
		var inner error
		err = entries(t.raw, t.idSize, func(name string, e node) bool {
			if !safeName(name) {
				unsafe++
				return true
			}
			if n++; n > maxEntries {
				inner = fmt.Errorf("more than %d files and folders", maxEntries)
				return false
			}
			w := walked{path.Join(prefix, name), e}
			switch {
			case e.is(modeFolder):
				if inner = fn(w); inner == nil {
					inner = into(e.id, w.path, depth+1)
				}
			case e.is(modeFile) || e.is(modeLink):
				inner = fn(w)
			}
			return inner == nil
		})
		if err == nil {
			err = inner
		}
		return err
	}
	return unsafe, into(tree, "", 0)
}

// link reads the text of a link. One that can't lead anywhere counts as not found.
func (m *mirror) link(ctx context.Context, id string) (string, error) {
	_, to, err := m.whole(ctx, id, "blob", maxLinkText)
	if errors.Is(err, errLarge) || err == nil && len(to) == 0 {
		err = errMissing
	}
	return string(to), m.expected(id, err)
}

// follow finds the file at a path, through links at its end. A link that leads outside the
// repository, or to a folder, counts as not found.
func (m *mirror) follow(ctx context.Context, tree, rel string) (node, error) {
	for range maxLinks {
		n, err := m.at(ctx, tree, rel)
		if err != nil {
			return node{}, err
		}
		switch {
		case n.is(modeFile):
			return n, nil
		case !n.is(modeLink):
			return node{}, errMissing
		}
		to, err := m.link(ctx, n.id)
		if err != nil {
			return node{}, err
		}
		// A link that begins with a slash stays in the repository, as in Salt.
		rel = path.Join(path.Dir(rel), strings.TrimLeft(path.Clean(to), "/"))
	}
	return node{}, errMissing
}
