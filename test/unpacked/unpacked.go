// Package unpacked names the folder in which the tests of all packages keep the renderer's Python:
// unpacking it takes half a minute under the race detector. Package render checks and locks the
// folder.
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
