package e2e

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Main is the TestMain of packages that run processes. Tests that wait far more than they compute
// go on sideBySide at a time, also where there are fewer processors; 0 leaves that to go test, and
// so does -parallel.
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

// plainEnvironment leaves to this process, and so to all that it starts, nothing that answers
// depend on: shell, language, terminal, who called sudo. What Salt answered on one machine can be
// compared with what ours answers on another then.
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
