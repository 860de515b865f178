package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
	"clustermaster/value/yaml11"
)

// Bounds on the files that are read.
const (
	maxFileSize     = 16 << 20
	maxIncludeDepth = 32
)

// source collects the files of a configuration.
type source struct {
	home     string
	values   value.Map // top-level options in force
	origins  map[string]origin
	files    []string // that were read
	warnings []Warning
}

// part is the content of one file, or of a list of merged ones.
type part struct {
	values  value.Map
	origins map[string]origin
}

// read loads the main file and its includes: `include` beats `default_include`
// beats the main file, each for whole options.
func (s *source) read(path string) error {
	main, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		main, err = fromTemplate(path)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; let users who run commands read it (mode 0644), with cluster_secret and other "+
			"secrets in a file of master.d that they can't read", err)
	}
	if err != nil {
		return err
	}
	s.values, s.origins = main.values, main.origins
	if isFile(path) {
		s.files = append(s.files, path)
	}
	defaultInclude, ok := s.values.Get("default_include")
	if !ok {
		defaultInclude = table()["default_include"].fallback
	}
	include, _ := s.values.Get("include")
	for _, pass := range []struct {
		option string
		value  any
	}{{"default_include", defaultInclude}, {"include", include}} {
		p, err := s.include(pass.value, path, pass.option, s.origins[pass.option], 0)
		if err != nil {
			return err
		}
		s.override(p)
	}
	return nil
}

// overlay replaces options by those of another file, whose includes don't count. A file that is
// missing or can't be opened changes nothing.
func (s *source) overlay(path string) error {
	if path == "" || !isFile(path) {
		return nil
	}
	p, err := readFile(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	s.override(p)
	return err
}

func (s *source) override(p part) {
	for _, e := range p.values {
		name := fmt.Sprint(e.Key)
		s.values = s.values.Set(name, e.Value)
		s.origins[name] = p.origins[name]
	}
}

// include merges the files that a list of patterns names: mappings deeply, lists joined without
// repeats, anything else the later file. It skips a file that can't be read, with a warning, as
// Salt does.
func (s *source) include(val any, from, option string, at origin, depth int) (part, error) {
	all := part{origins: map[string]origin{}}
	patterns, ok := texts(val)
	if !ok {
		return all, &Problem{File: at.file, Line: at.line, Option: option,
			Text: "is " + describe(val) + "; a file name or a list of file names is needed"}
	}
	if depth > maxIncludeDepth {
		return all, &Problem{File: at.file, Line: at.line, Option: option,
			Text: fmt.Sprintf("files include each other more than %d deep; take the circle out",
				maxIncludeDepth)}
	}
	for _, pattern := range patterns {
		pattern = ExpandUser(pattern, s.home)
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(from), pattern)
		}
		files := fnmatch.Glob(pattern)
		if err := unreadable(pattern); len(files) == 0 && err != nil {
			s.skip(pattern, err)
		} else if len(files) == 0 && option == "include" {
			s.warnings = append(s.warnings, Warning{File: at.file, Line: at.line, Option: option,
				Text: fmt.Sprintf("%s matches no file", pattern)})
		}
		for _, file := range files {
			p, err := readFile(file)
			if err != nil {
				s.skip(file, err)
				continue
			}
			s.files = append(s.files, file)
			if inner, ok := p.values.Get("include"); ok {
				deeper, err := s.include(inner, file, "include", p.origins["include"], depth+1)
				if err != nil {
					return all, err
				}
				for _, e := range deeper.values {
					name := fmt.Sprint(e.Key)
					p.values = p.values.Set(name, e.Value)
					p.origins[name] = deeper.origins[name]
				}
			}
			all.values = value.Recurse(all.values, p.values, true)
			for name, o := range p.origins {
				all.origins[name] = o
			}
		}
	}
	return all, nil
}

// skip warns that what a file says has no effect.
func (s *source) skip(file string, err error) {
	remedy := "correct it"
	if errors.Is(err, fs.ErrPermission) {
		remedy = "let the master's user read it"
	}
	s.warnings = append(s.warnings, Warning{File: file, Severe: true,
		Text: fmt.Sprintf("nothing of this file is used: %v; %s", err, remedy)})
}

// unreadable says why Glob, which shows no error, finds none of the files that may match.
func unreadable(pattern string) error {
	_, err := os.Stat(pattern)
	if fnmatch.Magic(pattern) {
		_, err = os.ReadDir(filepath.Dir(pattern))
	}
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

func readFile(path string) (part, error) {
	f, err := os.Open(path)
	if err != nil {
		return part{}, fmt.Errorf("open configuration: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return part{}, fmt.Errorf("read configuration: %w", err)
	}
	if len(b) > maxFileSize {
		return part{}, &FileError{path, fmt.Errorf("larger than %d bytes", maxFileSize)}
	}
	return parse(path, b)
}

func parse(path string, b []byte) (part, error) {
	doc, err := yaml11.LoadDocument(b)
	if err != nil {
		return part{}, &FileError{path, err}
	}
	p := part{origins: map[string]origin{}}
	switch v := doc.Value.(type) {
	case value.Map:
		p.values = v
	case nil:
	default:
		if v == false || v == int64(0) || v == "" || isEmptyList(v) {
			break // Python's `or {}`
		}
		return part{}, &FileError{path, fmt.Errorf("conf should be a document, not %s",
			describe(v))}
	}
	for i, e := range p.values {
		name, ok := e.Key.(string)
		if !ok {
			name = fmt.Sprint(e.Key)
			p.values[i].Key = name
		}
		p.origins[name] = origin{path, doc.Lines[name]}
		if name == "id" {
			p.values[i].Value = value.Str(e.Value)
		}
	}
	return p, nil
}

func isEmptyList(v any) bool {
	l, ok := v.([]any)
	return ok && len(l) == 0
}

// fromTemplate does what Salt does with a missing file: path.template without
// its first line is copied to path. Without a template there are only defaults.
func fromTemplate(path string) (part, error) {
	b, err := os.ReadFile(path + ".template")
	if err != nil {
		return part{origins: map[string]origin{}}, nil
	}
	_, body, _ := bytes.Cut(b, []byte("\n"))
	if err := os.WriteFile(path, body, 0o644); err != nil {
		return part{}, fmt.Errorf("copy %s.template: %w", path, err)
	}
	return readFile(path)
}
