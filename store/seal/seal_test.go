package seal

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func noEnv(string) string { return "" }

func key(t testing.TB, text string) *Key {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(strings.Repeat(text, 32)+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	k, err := Load(t.Context(), "file:"+path, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	long := strings.Repeat("k", 40)
	good := write("good", long+"\n", 0o400)
	env := func(name string) string { return map[string]string{"CREDENTIALS_DIRECTORY": dir}[name] }
	for source, part := range map[string]string{
		"file:" + good: "", "command:cat " + good: "", "credential:good": "",
		"file:" + write("open", long, 0o644):      "only its owner",
		"file:" + write("short", "abc", 0o400):    "at least 32",
		"file:" + filepath.Join(dir, "nosuch"):    "no such file",
		"command:echo key is gone >&2; exit 3":    "key is gone",
		"command:yes | head -c 100000 | tr y ' '": "at least 32",
		"credential:../good":                      "not the name",
		"vault:x":                                 "names no source",
		"file:":                                   "names no source",
	} {
		k, err := Load(t.Context(), source, env)
		if part == "" && (err != nil || !bytes.Equal(k.secret, []byte(long))) || part != "" &&
			(err == nil || !strings.Contains(err.Error(), part)) {
			t.Errorf("%s: %v, want %q", source, err, part)
		}
	}
	if _, err := Load(t.Context(), "credential:good", noEnv); err == nil ||
		!strings.Contains(err.Error(), "LoadCredential=") {
		t.Errorf("without credentials: %v", err)
	}
	if k, err := Load(t.Context(), "", noEnv); k != nil || err != nil {
		t.Errorf("no source: %v, %v", k, err)
	}
}

func TestBox(t *testing.T) {
	t.Parallel()
	a, b := key(t, "a").Box("log"), key(t, "b").Box("log")
	sealed := a.Seal([]byte("secret"), []byte("7"))
	if bytes.Contains(sealed, []byte("secret")) {
		t.Error("the text is in what was sealed")
	}
	if got, err := a.Open(sealed, []byte("7")); err != nil || string(got) != "secret" {
		t.Errorf("got %q, %v", got, err)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, f := range map[string]func() ([]byte, error){
		"another key":   func() ([]byte, error) { return b.Open(sealed, []byte("7")) },
		"another place": func() ([]byte, error) { return a.Open(sealed, []byte("8")) },
		"another purpose": func() ([]byte,
			error) {
			return key(t, "a").Box("x").Open(sealed, []byte("7"))
		},
		"changed": func() ([]byte, error) { return a.Open(changed, []byte("7")) },
		"cut":     func() ([]byte, error) { return a.Open(sealed[:10], []byte("7")) },
	} {
		if _, err := f(); !errors.Is(err, ErrOpen) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var none *Key
	if got := none.Box("log").Seal([]byte("x"), nil); string(got) != "x" {
		t.Errorf("without a key: %q", got)
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	k := key(t, "a")
	for _, size := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 2 * chunkSize,
		3*chunkSize + 17} {
		text := make([]byte, size)
		for i := range text {
			text[i] = byte(rand.Uint32())
		}
		var sealed bytes.Buffer
		w, err := k.NewWriter(&sealed, "snapshot")
		if err != nil {
			t.Fatal(err)
		}
		for rest := text; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(100_000))
			if _, err := w.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := PlainSize(int64(sealed.Len())); got != int64(size) {
			t.Errorf("%d bytes sealed: the size says %d", size, got)
		}
		read := func(b []byte) ([]byte, error) {
			r, err := k.NewReader(bytes.NewReader(b), "snapshot")
			if err != nil {
				return nil, err
			}
			return io.ReadAll(r)
		}
		if got, err := read(sealed.Bytes()); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d bytes: %d come back, %v", size, len(got), err)
		}
		for _, cut := range []int{1, 15, 16, 17, chunkSize, chunkSize + overhead} {
			if cut > sealed.Len() {
				continue
			}
			if _, err := read(sealed.Bytes()[:sealed.Len()-cut]); err == nil {
				t.Errorf("%d bytes: cut by %d without an error", size, cut)
			}
		}
		if _, err := read(append(bytes.Clone(sealed.Bytes()), 0)); err == nil {
			t.Errorf("%d bytes: a byte more without an error", size)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := key(t, "a"), key(t, "b")
	for _, step := range []struct {
		k     *Key
		empty bool
		part  string // of the error; "" means no error
	}{
		{nil, true, ""}, {a, false, "holds unsealed data"}, {a, true, ""}, {a, false, ""},
		{nil, false, "is sealed, but seal_key is not set"},
		{nil, true, "is sealed, but seal_key is not set"},
		{b, false, "with a key other than"}, {b, true, "with a key other than"}, {a, false, ""},
	} {
		err := Check(dir, step.k, step.empty)
		if step.part == "" && err != nil || step.part != "" &&
			(err == nil || !strings.Contains(err.Error(), step.part)) {
			t.Errorf("%+v: %v", step, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	k := key(f, "a")
	var sealed bytes.Buffer
	w, _ := k.NewWriter(&sealed, "x")
	_, _ = w.Write([]byte("seed"))
	_ = w.Close()
	f.Add(sealed.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := k.NewReader(bytes.NewReader(b), "x")
		var content []byte
		if err == nil {
			content, err = io.ReadAll(r)
		}
		// Each fuzzing process seals its own seed.
		if err == nil && string(content) != "seed" {
			t.Errorf("%x opens as %q", b, content)
		}
	})
}
