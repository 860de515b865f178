package dev

import (
	"os"
	"strings"
	"testing"
)

func TestFillHAProxy(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../lb/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	text := FillHAProxy(string(b), "127.1.2.100", []string{"127.1.2.1", "127.1.2.2"})
	for _, want := range []string{"bind 127.1.2.100:4505", "bind 127.1.2.100:4506"} {
		if strings.Count(text, "\n    "+want+"\n") != 1 {
			t.Errorf("want one line %q", want)
		}
	}
	for line, n := range map[string]int{
		"server master1 127.1.2.1:4505": 2, "server master2 127.1.2.2:4505": 2,
		"server master1 127.1.2.1:4506": 2, "server master2 127.1.2.2:4506": 2, "server master3": 0, "server master1 192.0.2": 0,
	} {
		if got := strings.Count(text, line); got != n {
			t.Errorf("%q stands %d times, want %d", line, got, n)
		}
	}
}
