package daemon

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"clustermaster/store/smallfile"
)

// Versions returns what follows the version in --versions-report, in Salt's sections: Go in place
// of Python, the modules that this program was built from, and the machine.
func Versions() string {
	var b strings.Builder
	section(&b, "Go Version", [][2]string{{"Go", runtime.Version()}})
	if info, ok := debug.ReadBuildInfo(); ok {
		var deps [][2]string
		for _, d := range info.Deps {
			deps = append(deps, [2]string{shortModule(d.Path), d.Version})
		}
		section(&b, "Dependency Versions", deps)
	}
	section(&b, "System Versions", systemVersions())
	return strings.TrimRight(b.String(), "\n")
}

func section(b *strings.Builder, title string, lines [][2]string) {
	width := 14
	for _, l := range lines {
		width = max(width, len(l[0])+2)
	}
	fmt.Fprintf(b, "%s:\n", title)
	for _, l := range lines {
		fmt.Fprintf(b, "%*s: %s\n", width, l[0], l[1])
	}
	b.WriteByte('\n')
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// shortModule names a module by its last two parts, without the host and the major version.
func shortModule(name string) string {
	if majorVersion.MatchString(path.Base(name)) {
		name = path.Dir(name)
	}
	parts := strings.Split(name, "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}

func systemVersions() [][2]string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return [][2]string{{"machine", runtime.GOARCH}, {"system", runtime.GOOS}}
	}
	release := readRelease("/etc/os-release")
	dist := strings.TrimSpace(release["ID"] + " " + release["VERSION_ID"] + " " + release["VERSION_CODENAME"])
	return [][2]string{
		{"dist", dist}, {"locale", locale()}, {"machine", unix.ByteSliceToString(u.Machine[:])},
		{"release", unix.ByteSliceToString(u.Release[:])},
		{"system", unix.ByteSliceToString(u.Sysname[:])}, {"version", release["PRETTY_NAME"]},
	}
}

// locale is the encoding that the environment names, as Salt writes it.
func locale() string {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			if _, encoding, ok := strings.Cut(v, "."); ok {
				return strings.ToLower(encoding)
			}
			break
		}
	}
	return "utf-8"
}

// readRelease reads a file in the form of os-release; empty if it does not exist.
func readRelease(file string) map[string]string {
	out := map[string]string{}
	text, err := smallfile.Read(file, 64<<10)
	if err != nil {
		return out
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, value, ok := strings.Cut(line, "="); ok {
			out[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return out
}
