package pythonhost

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Site lists a site's own modules, from the folders that Salt's loader searches before its own,
// without asking Python. It is safe for concurrent use.
type Site struct {
	folders []string

	mu    sync.Mutex // guards the fields below
	files map[string]siteFile
	names map[string]bool
	until time.Time // when to read the folders again
}

type siteFile struct {
	changed time.Time
	size    int64
	names   []string
}

// lookEvery is how long a list is used.
const lookEvery = time.Second

// maxSiteFile bounds how much of a module is read to find its names, in bytes.
const maxSiteFile = 1 << 20

// NewSite returns the modules of one type, such as "modules" or "pillar": those of
// extension_modules, of its folder in each of module_dirs, and of the folders in the type's own
// option.
func NewSite(extensionModules string, moduleDirs, own []string, kind string) *Site {
	s := &Site{}
	if extensionModules != "" {
		s.folders = append(s.folders, filepath.Join(extensionModules, kind))
	}
	for _, dir := range moduleDirs {
		s.folders = append(s.folders, filepath.Join(dir, kind), filepath.Join(dir, "_"+kind))
	}
	s.folders = append(s.folders, own...)
	return s
}

// Has reports whether the site has a module of that name.
func (s *Site) Has(module string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return s.names[module]
}

// Names lists the site's modules, sorted.
func (s *Site) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return slices.Sorted(maps.Keys(s.names))
}

// Forget makes the next call read the folders.
func (s *Site) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
}

func (s *Site) look() {
	now := time.Now()
	if now.Before(s.until) {
		return
	}
	s.until = now.Add(lookEvery)
	files, names := map[string]siteFile{}, map[string]bool{}
	for _, folder := range s.folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		for _, e := range entries {
			stem, _, _ := strings.Cut(e.Name(), ".")
			path := filepath.Join(folder, e.Name())
			if e.IsDir() {
				path = filepath.Join(path, "__init__.py")
			} else if ext := filepath.Ext(path); ext != ".py" && ext != ".so" && ext != ".zip" {
				continue
			}
			info, err := os.Stat(path)
			if err != nil || stem == "" || strings.HasPrefix(stem, "_") {
				continue
			}
			f, known := s.files[path]
			if !known || !f.changed.Equal(info.ModTime()) || f.size != info.Size() {
				f = siteFile{info.ModTime(), info.Size(), virtualNames(path)}
			}
			files[path] = f
			names[stem] = true
			for _, name := range f.names {
				names[name] = true
			}
		}
	}
	s.files, s.names = files, names
}

var virtualName = regexp.MustCompile(`__virtualname__\s*=\s*["']([\w.-]+)["']|(?m:^\s+)return\s+["']([\w.-]+)["']`)

// virtualNames returns the names that a module's text gives it.
func virtualNames(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text := make([]byte, maxSiteFile)
	n, _ := f.Read(text)
	if text = text[:n]; !strings.Contains(string(text), "__virtual") {
		return nil
	}
	var out []string
	for _, found := range virtualName.FindAllSubmatch(text, -1) {
		for _, name := range found[1:] {
			if len(name) > 0 {
				out = append(out, string(name))
			}
		}
	}
	return out
}
