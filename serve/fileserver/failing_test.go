package fileserver

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/value"
)

// broken is a back end that can't read its files.
type broken struct{}

var errBroken = errors.New("input/output error")

func (broken) Name() string           { return "git" }
func (broken) Envs() []string         { return []string{"base"} }
func (broken) Forget(string) []string { return nil }
func (broken) Lists(context.Context, string) (Lists, error) {
	return Lists{}, errBroken
}
func (broken) Find(context.Context, string, string) (File, bool, error) {
	return nil, false, errBroken
}

// TestFailureIsNoAbsence asks for files of a back end that fails: an empty answer would make
// file.recurse with clean remove the files of minions, and a later back end's file would take the
// place of its own. What an earlier back end has is served.
func TestFailureIsNoAbsence(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "f"), "of roots")
	ask := value.Map{{Key: "path", Value: "f"}, {Key: "saltenv", Value: "base"},
		{Key: "loc", Value: int64(0)}}
	for _, order := range [][]string{{"git", Roots}, {Roots, "git"}} {
		s, err := New(Options{Roots: []Env{{"base", []string{root}}}, BufferSize: 1 << 18,
			HashType: "sha256"}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Use(order, broken{})
		first := order[0] == Roots
		for name, fn := range map[string]func(context.Context, value.Map) (any, error){
			"_serve_file": s.serveFile, "_file_find": s.fileFind, "_file_hash": s.fileHash,
			"_file_hash_and_stat": s.hashAndStat,
		} {
			got, err := fn(t.Context(), ask)
			if first != (err == nil) || !first && (got != nil || !errors.Is(err, errBroken) ||
				!strings.Contains(err.Error(), "look up f in base of git")) {
				t.Errorf("%v, %s: %v, %v", order, name, got, err)
			}
		}
		if _, data, found, err := s.Read("base", "f"); found != first || first != (err == nil) ||
			first && string(data) != "of roots" {
			t.Errorf("%v, read: %q, %v, %v", order, data, found, err)
		}
		if _, err := s.listsOf(t.Context(), "base", nil); !errors.Is(err, errBroken) {
			t.Errorf("%v, lists: %v", order, err)
		}
	}
}
