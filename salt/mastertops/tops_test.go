package mastertops

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/salt/modules"
	"clustermaster/salt/render/rendertest"
	"clustermaster/value"
)

func TestMain(m *testing.M) { rendertest.Main(m) }

func dict(pairs ...any) (m value.Map) {
	for i := 0; i < len(pairs); i += 2 {
		m = append(m, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return m
}

// TestAsk joins the answers of several modules. It leaves out a module that fails.
func TestAsk(t *testing.T) {
	t.Parallel()
	var ran string
	prints := "#!jinja\nenvironment: staging\nclasses: [from-command, s]\n"
	output := func(_ context.Context, command string) (string, error) {
		ran = command
		return prints, nil
	}
	python := func(_ context.Context, name string, r Request) (value.Map, error) {
		if name != "saltclass" || r.Opts.String("id") != r.ID {
			t.Errorf("%s is asked with the options %v for %s", name, r.Opts, r.ID)
		}
		if r.ID == "broken" {
			return nil, errors.New("a class is broken")
		}
		return dict("staging", []any{"s", "t"}, "dev", []any{r.ID}), nil
	}
	made, err := New(dict("ext_nodes", "nodes --of", "saltclass", dict("path", "/x")),
		Deps{Output: output, Renderer: rendertest.Renderer(), Other: python,
			Overrides: func(string) bool { return false }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	sent := dict("id", "another", "grains", dict("os", "Debian"))
	ask := func(id string) value.Map { return made.Answer(t.Context(), id, sent) }
	if got, want := ask("web1"), dict("staging", []any{"from-command", "s", "t"}, "dev",
		[]any{"web1"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if ran != "nodes --of web1" || sent.String("id") != "another" {
		t.Errorf("ran %s, the minion's options are now %v", ran, sent)
	}
	if ask("a b'; x"); ran != `nodes --of 'a b'\''; x'` {
		t.Errorf("ran %s", ran)
	}
	ran = ""
	for _, id := range []string{"-rf", "a\nb"} {
		if got := ask(id); ran != "" || len(got) != 2 {
			t.Errorf("%q: ran %q, got %v", id, ran, got)
		}
	}
	if got, want := ask("broken"), dict("staging",
		[]any{"from-command", "s"}); !reflect.DeepEqual(got, want) {
		t.Errorf("without a module that fails: %v", got)
	}
	prints = "classes: {one: {}, two: null}\n"
	if got, want := ask("broken"), dict("base",
		[]any{"one", "two"}); !reflect.DeepEqual(got, want) {
		t.Errorf("classes as a map: %v", got)
	}
	if got := made.Answer(t.Context(), "web1", nil); !slices.ContainsFunc(got,
		func(p value.Pair) bool { return p.Key == "dev" }) {
		t.Errorf("without options: %v", got)
	}
}

// TestCommand: ext_nodes runs in the master's own folder and environment. It counts if it succeeds.
func TestCommand(t *testing.T) {
	t.Setenv("LC_TIME", "xx_YY")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "nodes")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"classes: ['$PWD', '$LC_TIME', '$1']\"\n"+
		"case $1 in down*) echo no database >&2; exit 3;; esac\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	made, err := New(dict("ext_nodes", program), Deps{Output: modules.Output,
		Renderer: rendertest.Renderer(), Overrides: func(string) bool { return false },
		Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := made.Answer(t.Context(), "web1", nil),
		dict("base", []any{here, "xx_YY", "web1"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v\n%s", got, want, &logged)
	}
	if got := made.Answer(t.Context(), "down1", nil); len(got) > 0 ||
		!strings.Contains(logged.String(), "exit status 3: no database") {
		t.Errorf("a command that failed: %v\n%s", got, &logged)
	}
}

// TestOptions: a site's module takes the place of ext_nodes, with any options.
func TestOptions(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		_, err := New(dict("ext_nodes", int64(1)),
			Deps{Overrides: func(string) bool { return own }, Log: slog.New(slog.DiscardHandler)})
		if own != (err == nil) || err != nil && !strings.Contains(err.Error(), "is not a command") {
			t.Errorf("a site's module %v: %v", own, err)
		}
	}
}

// TestCommandsTakeTurns: when all minions ask for their states, so many commands run at a time.
func TestCommandsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		ask := extNodes("nodes", Deps{Output: func(context.Context, string) (string, error) {
			if n := running.Add(1); n > commandsAtOnce {
				t.Errorf("%d run", n)
			}
			time.Sleep(time.Second)
			running.Add(-1)
			return "", errors.New("it is only timed")
		}})
		began := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { _, _ = ask(t.Context(), Request{ID: "web1"}) })
		}
		all.Wait()
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("100 commands of a second took %v", took)
		}
	})
}
