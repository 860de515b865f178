package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"clustermaster/serve/operator"
	"clustermaster/value"
)

// runners answers every runner function with its name.
type runners struct{}

func (runners) Run(_ context.Context, r operator.RunRequest, _ func(string, any)) (operator.RunResult, error) {
	if r.Async {
		return operator.RunResult{}, errors.New("nobody waits for the answer")
	}
	return operator.RunResult{Return: r.Fun, Success: true}, nil
}

func (runners) Docs(string) value.Map { return nil }

// TestQueryBesideOptions reads the answer although the site has salt-run print another text.
func TestQueryBesideOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := operator.Listen(dir, operator.Deps{Runners: runners{}, Log: slog.New(slog.DiscardHandler),
		Status: func() operator.Status { return operator.Status{ID: "m1", Serving: true} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(dir, "printed")
	for _, option := range []string{"show_jid: True", "quiet: True", "async: True", "output: yaml",
		"output_file: " + file, "force_color: True"} {
		for _, rc := range []bool{false, true} {
			in := map[bool]string{rc: option + "\n"}
			saltrc := filepath.Join(dir, "saltrc")
			for path, text := range map[string]string{saltrc: in[true],
				filepath.Join(dir, "master"): "sock_dir: " + dir + "\ncachedir: " + dir + "\n" + in[false]} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var got string
			_, err := Query(ctx, func(name string) string {
				return map[string]string{"SALT_CLIENT_CONFIG": saltrc}[name]
			}, dir, &got, "cluster.members")
			if err != nil || got != "cluster.members" {
				t.Errorf("%s, in saltrc: %v: got %q, %v", option, rc, got, err)
			}
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the answer went to output_file")
	}
}
