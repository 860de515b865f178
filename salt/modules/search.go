package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
	"clustermaster/value/pyregex"
)

// searchFunctions are the functions of file that search in files.
func searchFunctions() []function {
	return []function{
		{name: "file.contains_regex", params: []param{need("path"), need("regex"),
			opt("lchar", "")}, run: containsRegex},
		{name: "file.contains_glob", params: []param{need("path"), need("glob_expr")},
			run: containsGlob},
		{name: "file.search", params: []param{need("path"), need("pattern"),
			opt("flags", int64(pyregex.Multiline)), opt("bufsize", int64(1)),
			opt("ignore_if_missing", false), opt("multiline", false)}, run: searchFile},
		{name: "file.grep", params: []param{need("path"), need("pattern")}, varArgs: true,
			varKwargs: true, run: grep},
	}
}

// readText reads a file that should be text. found is false if Salt treats the file as empty.
func readText(p string) (content string, found bool, err error) {
	info, err := os.Stat(p)
	if err != nil || info.IsDir() {
		return "", false, nil // Salt's answer
	}
	b, err := readFile(p)
	if errors.Is(err, fs.ErrPermission) {
		return "", false, nil
	}
	if err == nil && !utf8.Valid(b) {
		err = fmt.Errorf("%s is not UTF-8 text", p)
	}
	return string(b), err == nil, err
}

// cutLine splits off the first line of a text, with its end: "\n", "\r\n" or "\r".
func cutLine(s string) (line, rest string) {
	i := strings.IndexAny(s, "\r\n")
	switch {
	case i < 0:
		return s, ""
	case strings.HasPrefix(s[i:], "\r\n"):
		i++
	}
	return s[:i+1], s[i+1:]
}

func containsRegex(ctx context.Context, c *call) (any, error) {
	content, found, err := readText(expand(c.text("path")))
	if err != nil || content == "" || !found {
		return false, err
	}
	expr, ok := c.any("regex").(string)
	if !ok {
		return nil, fmt.Errorf("regex must be text, not %s", value.Repr(c.any("regex")))
	}
	search, err := pyregex.SearchText(expr, 0)
	if err != nil {
		return nil, err
	}
	for line := ""; content != ""; {
		line, content = cutLine(content)
		if c.is("lchar") {
			line = strings.TrimLeft(line, c.text("lchar"))
		}
		if hit, err := search(line); hit || err != nil {
			return hit, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return false, nil
}

// Salt matches a glob against the first part of a file and then against overlapping later parts, as
// if the file did not fit in memory.
const (
	globPart = 256 << 10 // characters
	globStep = 32 << 10  // characters
	maxGlob  = 4 << 10   // bytes of a glob
)

func containsGlob(ctx context.Context, c *call) (any, error) {
	content, found, err := readText(expand(c.text("path")))
	if err != nil || !found {
		return false, err
	}
	expr, ok := c.any("glob_expr").(string)
	if !ok && content == "" {
		return false, nil
	}
	if !ok || len(expr) > maxGlob {
		return nil, fmt.Errorf("glob_expr must be text of at most %d bytes", maxGlob)
	}
	letters := []rune(content)
	for from, to := 0, 0; to < len(letters); from += globStep {
		to = min(len(letters), from+globPart)
		if fnmatch.Match(expr, string(letters[from:to])) {
			return true, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return false, nil
}

// searchFile searches for an expression in the bytes of a whole file.
func searchFile(_ context.Context, c *call) (any, error) {
	flags, err := regexFlags(c.any("flags"))
	if err != nil {
		return nil, err
	}
	if c.is("multiline") {
		flags |= pyregex.Multiline
	}
	p := expand(c.text("path"))
	if _, err := os.Stat(p); err != nil {
		if c.is("ignore_if_missing") {
			return false, nil
		}
		return nil, fmt.Errorf("File not found: %s", p)
	}
	b, err := readFile(p)
	if err != nil {
		return nil, err
	}
	if binary(b[:min(len(b), 512)]) {
		return nil, fmt.Errorf("Cannot perform string replacements on a binary file: %s", p)
	}
	pattern, err := c.bytes("pattern")
	if err != nil {
		return nil, err
	}
	search, err := pyregex.SearchBytes(pattern, flags)
	if err != nil {
		return nil, err
	}
	return search(b)
}

// binary is Salt's guess, from the first bytes of a file, that it is not text.
func binary(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return true
	}
	high := utf8.Valid(b) || truncated(b) // bytes from 0x80 are then letters
	odd := 0
	for _, x := range b {
		switch {
		case x >= ' ' && x <= '~', bytes.IndexByte([]byte("\n\r\t\f\b"), x) >= 0, high &&
			x >= 0x80 && x < 0xff:
		default:
			odd++
		}
	}
	return float64(odd)/float64(len(b)) > 0.3
}

// truncated reports whether only the last character is incomplete.
func truncated(b []byte) bool {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			return !utf8.FullRune(b)
		}
		b = b[size:]
	}
	return false
}

// regexFlags are flags of Python's module re: a number, a name, or a list of names.
func regexFlags(v any) (pyregex.Flags, error) {
	names := map[string]pyregex.Flags{
		"A": pyregex.ASCII, "ASCII": pyregex.ASCII, "I": pyregex.IgnoreCase,
		"IGNORECASE": pyregex.IgnoreCase, "L": pyregex.Locale, "LOCALE": pyregex.Locale,
		"U": pyregex.Unicode, "UNICODE": pyregex.Unicode,
		"M": pyregex.Multiline, "MULTILINE": pyregex.Multiline, "S": pyregex.DotAll,
		"DOTALL": pyregex.DotAll, "X": pyregex.Verbose, "VERBOSE": pyregex.Verbose,
	}
	switch v := v.(type) {
	case int64, bool:
		n, _ := number(v)
		return pyregex.Flags(n), nil
	case string:
		return regexFlags([]any{v})
	case []any:
		var flags pyregex.Flags
		for _, name := range v {
			flag, ok := names[strings.ToUpper(value.Str(name))]
			if !ok {
				return 0, fmt.Errorf("Invalid re flag given: %s", value.Str(name))
			}
			flags |= flag
		}
		return flags, nil
	}
	return 0,
		fmt.Errorf(`Invalid re flags: "%s", must be given either as a single flag string, a list of strings, as an integer, or as an re flag`, value.Str(v))
}

// grep runs grep, without a shell, on the files that match a glob.
func grep(ctx context.Context, c *call) (any, error) {
	argv := []any{"grep"}
	for _, v := range c.more {
		option, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("options of grep must be text, not %s", value.Repr(v))
		}
		words, err := shellSplit(option)
		if err != nil {
			return nil, err
		}
		if len(words) > 1 {
			return nil,
				fmt.Errorf("Passing multiple command line arguments in a single string is not supported, please pass the following arguments separately: %s", option)
		}
		argv = append(argv, value.Texts(words)...)
	}
	p := expand(c.text("path"))
	hits, err := glob(p)
	if err != nil {
		return nil, err
	}
	if len(hits) == 0 {
		hits = []string{p}
	}
	return c.Call(ctx, c.who, "cmd.run_all",
		[]any{append(append(argv, c.text("pattern")), value.Texts(hits)...)}, nil)
}
