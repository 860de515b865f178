// Package answers keeps answers of the real Salt in files, so that tests can compare ours with them
// without asking Salt each time.
//
// An answer is bound to Salt's release, the settings under which it was given and the full text of
// its question, by a hash over all of these and the answer. If one of them changes, or a question
// is added or removed, the test fails until Salt has been asked again. Lives here: the format of
// the files, this check, and when Salt is asked. Does not: how Salt is asked, what is masked in its
// answers.
package answers

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Long reports whether this run asks Salt if the kept answers are still its own. Only `make
// test-long` does, because the answers change only with Salt's release.
func Long() bool { return os.Getenv("CLUSTERMASTER_LONG") != "" }

// OnlyLong skips a test that asks Salt, except in long runs and in those that update the answers.
func OnlyLong(t testing.TB, update bool) {
	t.Helper()
	if !update && !Long() {
		t.Skip("asks Salt whether what is kept is still its answer; run make test-long")
	}
}

// renew is the command that asks Salt again.
const renew = "make salt-answers"

// Answers are those of one file, in the order of their questions. T is the type compared, as JSON.
type Answers[T any] struct {
	path     string
	release  string
	settings string // digest
	update   bool

	mu    sync.Mutex // guards the fields below
	kept  file
	now   map[int]entry // Salt's answers in this run
	asked int           // questions so far
}

type file struct {
	Settings string  `json:"settings"` // digest
	Answers  []entry `json:"answers"`
}

type entry struct {
	Asked string          `json:"asked"`
	Said  json.RawMessage `json:"said"`
	Hash  string          `json:"hash"`
}

// hash binds an answer to its question and to what a file's answers depend on.
func (e entry) hash(release, settings string) string {
	var said bytes.Buffer
	if err := json.Compact(&said, e.Said); err != nil {
		return err.Error()
	}
	h := sha256.New()
	for _, part := range []string{release, settings, e.Asked, said.String()} {
		fmt.Fprintf(h, "%d %s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// Open reads the file of a test's answers, which may be missing before the first update. settings
// is the text of everything else that the answers of a release depend on. With update the file is
// written when the test ends.
func Open[T any](t testing.TB, path, release, settings string, update bool) *Answers[T] {
	t.Helper()
	sum := sha256.Sum256([]byte(settings))
	a := &Answers[T]{path: path, release: release, settings: hex.EncodeToString(sum[:16]),
		update: update, now: map[int]entry{}}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &a.kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s: %v", path, err)
	}
	t.Cleanup(func() {
		switch {
		case update:
			if err := a.write(); err != nil {
				t.Error(err)
			}
		case !t.Failed() && a.asked != len(a.kept.Answers):
			t.Errorf("%s has %d answers to %d questions: %s", path, len(a.kept.Answers),
				a.asked, renew)
		}
	})
	return a
}

// Turn counts a question. Questions that are asked at the same time take their turns in order
// first.
func (a *Answers[T]) Turn() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	return a.asked - 1
}

// Salt is Salt's answer to the question of a turn: the kept one if ask is nil. Otherwise ask's
// answer must equal the kept one, unless that is being updated.
func (a *Answers[T]) Salt(t testing.TB, turn int, question string, ask func() T) T {
	t.Helper()
	var now T
	if ask != nil {
		now = ask()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if ask != nil && a.update {
		e := entry{Asked: question, Said: json.RawMessage(text(now))}
		e.Hash = e.hash(a.release, a.settings)
		a.now[turn] = e
		return now
	}
	if turn >= len(a.kept.Answers) || a.kept.Answers[turn].Asked != question {
		t.Errorf("%s has no answer of Salt's to question %d: %s: %s", a.path, turn+1,
			question, renew)
		return now
	}
	e := a.kept.Answers[turn]
	if e.Hash != e.hash(a.release, a.settings) {
		t.Errorf("%s: answer %d is of another release or other settings than today's, or was edited: %s",
			a.path, turn+1, renew)
	}
	var said T
	if err := json.Unmarshal(e.Said, &said); err != nil {
		t.Errorf("%s: answer %d: %v", a.path, turn+1, err)
	}
	if ask == nil {
		return said
	}
	if was, is := text(said), text(now); was != is {
		t.Errorf("%s: Salt's answer to %s is no longer what is kept (%s)\n--- kept\n%s--- now\n%s",
			a.path, question, renew, was, is)
	}
	return now
}

func (a *Answers[T]) write() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.now) == 0 {
		return nil
	}
	f := file{Settings: a.settings}
	for turn := range a.asked {
		if e, ok := a.now[turn]; ok {
			f.Answers = append(f.Answers, e)
		}
	}
	if err := os.MkdirAll(filepath.Dir(a.path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(a.path, []byte(text(f)), 0o644)
}

// text is readable JSON.
func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return b.String()
}
