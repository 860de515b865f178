// Package unpacked names the folder in which the tests of all packages keep the renderer's Python:
// under the race detector it takes half a minute to unpack. package render checks what it finds
// there, and locks it.
package unpacked

import (
	"os"
	"path/filepath"
)

// Dir is .build/render of the repository. It panics outside of one.
func Dir() string {
	for dir, _ := filepath.Abs("."); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".build", "render")
		}
		if dir == filepath.Dir(dir) {
			panic("this test runs outside of the repository")
		}
	}
}
