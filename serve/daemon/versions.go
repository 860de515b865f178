package daemon

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Versions lists the program's parts, one a line.
func Versions() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Dependency Versions:\n %20s: %s\n", "go", runtime.Version())
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			fmt.Fprintf(&b, " %20s: %s\n", d.Path[strings.LastIndexByte(d.Path, '/')+1:], d.Version)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
