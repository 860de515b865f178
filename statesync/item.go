package statesync

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Tree is one of the two trees that are synced. The numbers are in manifests and in the replicated
// state: append only.
type Tree uint8

// The trees.
const (
	FileRoots   Tree = 1
	PillarRoots Tree = 2
)

func (t Tree) String() string {
	switch t {
	case FileRoots:
		return "file_roots"
	case PillarRoots:
		return "pillar_roots"
	}
	return fmt.Sprintf("tree %d", uint8(t))
}

// ParseTrees reads the argument roots of the operator's commands: file, pillar or both.
func ParseTrees(s string) ([]Tree, error) {
	switch s {
	case "both", "":
		return []Tree{FileRoots, PillarRoots}, nil
	case "file", "file_roots":
		return []Tree{FileRoots}, nil
	case "pillar", "pillar_roots":
		return []Tree{PillarRoots}, nil
	}
	return nil, fmt.Errorf("roots %q: not one of file, pillar, both", s)
}

// Sum is a SHA-256.
type Sum [32]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// Kind is the kind of an item. The numbers are in manifests: append only.
type Kind uint8

// The kinds. Root links are links whose text begins with the root's own folder; that part differs
// between masters.
const (
	File     Kind = 1
	Dir      Kind = 2
	Link     Kind = 3
	RootLink Kind = 4

	// pipes, sockets, devices, links that lead outside: found in scans, never in a manifest
	other Kind = 255
)

// Scope names one root of one environment by its number in the configuration's list. Env may hold
// more than the environment; see nameMark.
type Scope struct {
	Env  string
	Root int
}

func (s Scope) String() string {
	env, name, _ := s.cut()
	if name != "" {
		name = "/" + name
	}
	return fmt.Sprintf("%s:%d%s", env, s.Root, name)
}

func (s Scope) compare(o Scope) int {
	if c := strings.Compare(s.Env, o.Env); c != 0 {
		return c
	}
	return s.Root - o.Root
}

// Item is one entry below a root. Path is relative, with slashes. Names may contain any byte except
// 0 and the slash.
type Item struct {
	Path   string
	Kind   Kind
	Mode   uint32 // permission bits of files and folders
	Size   int64  // of a file, in bytes
	Sum    Sum    // of a file
	Target string // a link's text; of a RootLink what follows the root's folder
}

// Bounds of manifests and trees.
const (
	maxPath     = 4095 // bytes
	maxName     = 255  // bytes
	maxDepth    = 128
	maxItems    = 1 << 20
	maxScopes   = 1 << 12
	maxManifest = 256 << 20 // bytes
	modeBits    = 0o777
)

// StagingDir is the folder in a root where contents are prepared and replaced ones kept. The file
// server and manifests skip it at any depth.
const StagingDir = ".clustermaster-staging"

// skippedDir reports whether a folder with this name is not synced: this program's own, and those
// that Salt's own sync skips.
func skippedDir(name string) bool {
	switch name {
	case StagingDir, ".git", ".hg", ".svn", "__pycache__", ".tox":
		return true
	}
	return false
}

// check refuses an item that must never be written below a root.
func (it *Item) check() error {
	if err := checkPath(it.Path); err != nil {
		return err
	}
	if it.Mode&^modeBits != 0 || it.Size < 0 {
		return fmt.Errorf("%q: mode %o, size %d", it.Path, it.Mode, it.Size)
	}
	isFile, isLink := it.Kind == File, it.Kind == Link || it.Kind == RootLink
	switch {
	case !isFile && !isLink && it.Kind != Dir:
		return fmt.Errorf("%q: kind %d", it.Path, it.Kind)
	case !isFile && (it.Size != 0 || it.Sum != Sum{}), !isLink && it.Target != "", isLink &&
		it.Mode != 0:
		return fmt.Errorf("%q: a field that its kind does not have", it.Path)
	case isLink && !staysInside(it):
		return fmt.Errorf("%q: the link leads out of the root", it.Path)
	}
	return nil
}

func checkPath(path string) error {
	if path == "" || len(path) > maxPath || strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("%q: not a path below a root", path)
	}
	depth := 0
	for name := range strings.SplitSeq(path, "/") {
		depth++
		if name == "" || name == "." || name == ".." || name == StagingDir || len(name) > maxName ||
			depth > maxDepth {
			return fmt.Errorf("%q: not a path below a root", path)
		}
	}
	return nil
}

// staysInside reports whether a link leads to a place below the root whatever the other links in
// the tree are. ".." must not follow a name: the name could be a link to another place, and ".."
// would start from there.
func staysInside(it *Item) bool {
	if len(it.Target) > maxPath || strings.IndexByte(it.Target, 0) >= 0 {
		return false
	}
	up := strings.Count(it.Path, "/")
	if it.Kind == RootLink {
		up = 0
		if it.Target != "" && it.Target[0] != '/' {
			return false
		}
	} else if it.Target == "" || it.Target[0] == '/' {
		return false
	}
	named := false
	for name := range strings.SplitSeq(it.Target, "/") {
		switch name {
		case "", ".":
		case "..":
			if up--; up < 0 || named {
				return false
			}
		case StagingDir:
			return false
		default:
			named = true
		}
	}
	return true
}

func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return ""
}
