package e2e

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// raced reports whether the program in the folder CLUSTERMASTER_BIN was built with the race
// detector, as in parts of `make test-long`. Such masters need several times the processor time and
// the memory.
var raced = sync.OnceValue(func() bool {
	info, err := buildinfo.ReadFile(filepath.Join(os.Getenv("CLUSTERMASTER_BIN"), "clustermaster"))
	if err != nil {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
})

// Within is the time that our masters and commands may take for what takes d as they are shipped:
// four times as much under the race detector.
func Within(d time.Duration) time.Duration {
	if raced() {
		return 4 * d
	}
	return d
}

// Amount is how many of n things a test gives to our masters: a tenth under the race detector,
// where all would take hours.
func Amount(n int) int {
	if raced() {
		return n / 10
	}
	return n
}

// MemoryCounts reports whether the memory of our masters says something about the shipped program.
// If not, the report of the run says that it was left out; `make test` looks at it.
func MemoryCounts(t testing.TB) bool {
	t.Helper()
	return counts(t, "memory of masters under the race detector (make test compares it)")
}

// RatesCount is MemoryCounts for what our masters do in a second, and how soon.
func RatesCount(t testing.TB) bool {
	t.Helper()
	return counts(t, "rates of masters under the race detector (without make raced, the test compares them)")
}

func counts(t testing.TB, what string) bool {
	t.Helper()
	if raced() {
		t.Log("left out: " + what)
	}
	return !raced()
}

// Instruments are the variables of the environment by which a program built with the race detector
// or for coverage finds its files, for commands that get an environment of their own.
func Instruments() []string {
	var list []string
	for _, name := range []string{"GOCOVERDIR", "GORACE"} {
		if v, ok := os.LookupEnv(name); ok {
			list = append(list, name+"="+v)
		}
	}
	return list
}
