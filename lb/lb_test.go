package lb

import (
	"strings"
	"testing"
)

// TestWithoutRoot: what another user than root can't follow is removed, and nothing else.
func TestWithoutRoot(t *testing.T) {
	t.Parallel()
	text := WithoutRoot(HAProxy)
	for _, line := range []string{"user haproxy", "group haproxy", "chroot ", "stats socket "} {
		if !strings.Contains(HAProxy, "\n    "+line) || strings.Contains(text, "\n    "+line) {
			t.Errorf("%q is not in the shipped file alone", line)
		}
	}
	if !strings.Contains(text, "\nglobal\n    # A minion holds") ||
		strings.Count(HAProxy, "\n")-strings.Count(text, "\n") != 8 {
		t.Errorf("more is removed: %s", text)
	}
}

func TestFillIn(t *testing.T) {
	t.Parallel()
	text, err := FillIn(HAProxy, "127.1.2.100",
		[]Server{{"m1", "127.1.2.1"}, {"m2", "127.1.2.2"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bind 127.1.2.100:4505", "bind 127.1.2.100:4506"} {
		if strings.Count(text, "\n    "+want+"\n") != 1 {
			t.Errorf("want one line %q", want)
		}
	}
	for line, n := range map[string]int{
		"server m1 127.1.2.1:4505 track ready/m1\n": 1, "server m2:alive 127.1.2.2:4505 track alive/m2 ": 1,
		"server m1:alive 127.1.2.1:4506 ": 1, "server m2 127.1.2.2:4506 track ready/m2\n": 1,
		"server m2 127.1.2.2:4521 check": 2, "server master": 0, "track ready/master": 0,
	} {
		if got := strings.Count(text, line); got != n {
			t.Errorf("%q stands %d times, want %d", line, got, n)
		}
	}
	if _, err := FillIn(HAProxy+"backend other\n    server m 10.0.0.1:1\n", "*",
		[]Server{{"m", "10.0.0.1"}}); err == nil {
		t.Error("a back end without a placeholder is taken")
	}
}
