package answers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a test that continues after a failure.
type recorder struct {
	testing.TB
	errors  []string
	cleanup []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Error(args ...any) { r.errors = append(r.errors, fmt.Sprint(args...)) }
func (r *recorder) Failed() bool      { return len(r.errors) > 0 }
func (r *recorder) Cleanup(f func())  { r.cleanup = append(r.cleanup, f) }
func (r *recorder) says(text string) bool {
	return strings.Contains(strings.Join(r.errors, "\n"), text)
}

// round asks questions and returns what was wrong.
func round(t *testing.T, path, settings string, update bool, live func(question string) string,
	questions ...string) (answers []string, r *recorder) {
	t.Helper()
	r = &recorder{TB: t}
	a := Open[string](r, path, "3008", settings, update)
	for _, q := range questions {
		var ask func() string
		if live != nil {
			ask = func() string { return live(q) }
		}
		answers = append(answers, a.Salt(r, a.Turn(), q, ask))
	}
	for _, f := range r.cleanup {
		f()
	}
	return answers, r
}

func TestAnswersAreBound(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "answers", "x.json")
	upper := func(q string) string { return strings.ToUpper(q) + "<\x1b[0m\n" }
	if _, r := round(t, path, "s", true, upper, "a", "b", "a"); r.Failed() {
		t.Fatal(r.errors)
	}
	got, r := round(t, path, "s", false, nil, "a", "b", "a")
	if want := []string{upper("a"), upper("b"), upper("a")}; r.Failed() ||
		strings.Join(got, "") != strings.Join(want, "") {
		t.Errorf("%q, want %q: %v", got, want, r.errors)
	}
	if _, r := round(t, path, "s", false, upper, "a", "b", "a"); r.Failed() {
		t.Errorf("Salt still says so: %v", r.errors)
	}
	for name, tt := range map[string]struct {
		settings  string
		live      func(string) string
		questions []string
		want      string
	}{
		"an edited question": {"s", nil, []string{"a", "B", "a"},
			"no answer of Salt's to question 2: B: make salt-answers"},
		"one question more": {"s", nil, []string{"a", "b", "a", "c"},
			"no answer of Salt's to question 4: c: make salt-answers"},
		"one question less": {"s", nil, []string{"a", "b"},
			"has 3 answers to 2 questions: make salt-answers"},
		"other settings": {"S", nil, []string{"a", "b", "a"},
			"answer 1 is of another release or other settings than today's, or was edited: make salt-answers"},
		"Salt says otherwise": {"s", strings.ToUpper, []string{"a", "b", "a"},
			"is no longer what is kept (make salt-answers)"},
	} {
		if _, r := round(t, path, tt.settings, false, tt.live, tt.questions...); !r.says(tt.want) {
			t.Errorf("%s: %q, want %q", name, r.errors, tt.want)
		}
	}
	edited := filepath.Join(t.TempDir(), "edited.json")
	was, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(edited, bytes.Replace(was, []byte(`"A<`), []byte(`"Aha<`), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, r := round(t, edited, "s", false, nil, "a", "b", "a"); !r.says("answer 1 is of another release") {
		t.Errorf("an edited answer: %q", r.errors)
	}
	if _, r := round(t, filepath.Join(t.TempDir(), "none.json"), "s", false, nil,
		"a"); !r.says("no answer of Salt's") {
		t.Errorf("no file: %q", r.errors)
	}
}
