package e2e

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Main is the TestMain of packages that run processes. sideBySide tests run at the same time, even
// on fewer processors, for tests that mostly wait. 0 leaves the number to go test, and so does
// -parallel.
func Main(m *testing.M, sideBySide int) {
	err := plainEnvironment()
	if err == nil && sideBySide > 0 {
		err = flag.Set("test.parallel", strconv.Itoa(sideBySide))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// plainEnvironment removes from this process's environment, and so from that of all it starts, what
// answers depend on: shell, language, terminal, the caller of sudo. Then answers of Salt on one
// machine can be compared with ours on another.
func plainEnvironment() error {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if name == "PATH" || name == "HOME" || name == "TMPDIR" || strings.HasPrefix(name, "GO") ||
			strings.HasPrefix(name, "CLUSTERMASTER_") {
			continue
		}
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	for name, value := range map[string]string{"SHELL": "/bin/sh", "LANG": "C.UTF-8"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}
