package gitfs

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of trees.
const (
	maxEntries  = 1 << 20 // of one environment
	maxDepth    = 128     // folders in each other
	maxLinks    = 100     // links that lead to links
	maxLinkText = 4096
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

// safeName refuses names that no file server should pass on: they lead elsewhere, or are git's own.
func safeName(name string) bool {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00\n") ||
		!utf8.ValidString(name) {
		return false
	}
	return !strings.EqualFold(name, ".git")
}

// tree reads the bytes of a tree, or remembers them.
func (m *mirror) tree(ctx context.Context, id string) ([]byte, error) {
	if raw, ok := m.caches.trees.get(id); ok {
		return raw, nil
	}
	_, raw, err := m.whole(ctx, id, "tree", maxTree)
	if err != nil {
		return nil, err
	}
	m.caches.trees.put(id, raw, len(raw)+128)
	return raw, nil
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

// entryNamed finds an entry of a tree by its name; the zero value if there is none.
func entryNamed(raw []byte, idSize int, name string) (node, error) {
	for len(raw) > 0 {
		sp := bytes.IndexByte(raw, ' ')
		if sp < 1 || sp > 8 {
			return node{}, errDamaged
		}
		nul := bytes.IndexByte(raw[sp:], 0) + sp
		if nul < sp || len(raw) < nul+1+idSize {
			return node{}, errDamaged
		}
		if string(raw[sp+1:nul]) == name {
			mode, err := strconv.ParseUint(string(raw[:sp]), 8, 32)
			if err != nil {
				return node{}, errDamaged
			}
			return node{uint32(mode), hex.EncodeToString(raw[nul+1 : nul+1+idSize])}, nil
		}
		raw = raw[nul+1+idSize:]
	}
	return node{}, nil
}

var errDamaged = errors.New("a tree is damaged")

// commitTree is the tree of a commit, and the commit's full id.
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
	key := tree + ":" + rel
	if found, ok := m.caches.paths.get(key); ok {
		if found.id == "" {
			return node{}, errMissing
		}
		return found, nil
	}
	depth := 0
	for name := range strings.SplitSeq(rel, "/") {
		if depth++; !n.is(modeFolder) || !safeName(name) || depth > maxDepth {
			n = node{}
			break
		}
		raw, err := m.tree(ctx, n.id)
		if err != nil {
			return node{}, err
		}
		if n, err = entryNamed(raw, len(tree)/2, name); err != nil {
			return node{}, err
		}
	}
	m.caches.paths.put(key, n, len(key)+100)
	if n.id == "" {
		return node{}, errMissing
	}
	return n, nil
}

// walked is one entry that a walk came to.
type walked struct {
	path string
	node
}

// walk calls fn with all below a tree. Unsafe names are counted and left out, submodules too.
func (m *mirror) walk(ctx context.Context, tree string, fn func(walked) error) (unsafe int,
	err error) {
	n := 0
	var into func(id, prefix string, depth int) error
	into = func(id, prefix string, depth int) error {
		if depth > maxDepth {
			return fmt.Errorf("folders are more than %d deep", maxDepth)
		}
		raw, err := m.tree(ctx, id)
		if err != nil {
			return err
		}
		var inner error
		err = entries(raw, len(id)/2, func(name string, e node) bool {
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

// follow finds the file at a path, through links at its end. A link that leads out of the
// repository, or to a folder, is not found.
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
		_, to, err := m.whole(ctx, n.id, "blob", maxLinkText)
		if err != nil || len(to) == 0 {
			return node{}, errMissing
		}
		// A link that begins with a slash stays in the repository, as in Salt.
		rel = path.Join(path.Dir(rel), strings.TrimLeft(path.Clean(string(to)), "/"))
	}
	return node{}, errMissing
}
