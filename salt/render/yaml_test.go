package render

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"clustermaster/value"
)

// worked runs a stage in a worker.
func worked(t *testing.T, r *Renderer, kind, text string) (any, error) {
	t.Helper()
	src, c := source("t", text), Context{}
	j := &job{r: r, src: src, c: c, h: tree{}, parts: newParts(src, c)}
	return j.ask(t.Context(), kind, text)
}

// TestPlainTextNeedsNoWorker: a text without template marks comes out as Jinja would print it.
func TestPlainTextNeedsNoWorker(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{})
	for _, text := range []string{
		"a", "a\n", "a\n\n", "\n", "a\r\nb\r\n", "a\rb\r", "a\r", "a\n\r\n",
		"a\u0085b\u2028c\u2029", "{ {x} } {", "{", "a: {b: {c: 1}}", "}} %} #}",
		"#!yaml\na: 1\n", "# comment\n", "\ufeffa: 1\n", "a\x00b", "a\x0cb\x0b", "  x  ", "\t{\n{",
		"a {\r{ b",
	} {
		if !plainText(text) {
			t.Errorf("%q goes to the worker", text)
			continue
		}
		src := source("t", text)
		j := &job{r: r, src: src, h: tree{}, parts: newParts(src, Context{})}
		got, err := j.jinja(t.Context(), text)
		want, wantErr := worked(t, r, "jinja", text)
		if err != nil || wantErr != nil || got != want {
			t.Errorf("%q: got %q, %v; Jinja %q, %v", text, got, err, want, wantErr)
		}
	}
	for _, text := range []string{"{{", "{%", "{#", "a {{ b", "#jinja2: {}\na", "x\n#jinja2:",
		"\xff"} {
		if plainText(text) {
			t.Errorf("%q does not go to the worker", text)
		}
	}
}

// TestYAMLInGoIsLibyaml: a document that Go reads has the same value as with libyaml and Salt's
// rules. The documents are those of the corpus and many randomly damaged ones.
func TestYAMLInGoIsLibyaml(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, Options{Timeout: 10_000_000_000})
	var docs []string
	for _, c := range corpus(t) {
		if plainText(c.Text) && !strings.HasPrefix(c.Text, "#!") {
			docs = append(docs, c.Text)
		}
	}
	if len(docs) < 40 {
		t.Fatalf("only %d documents", len(docs))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	const signs = "  \n\n:-,[]{}#&*!|>'\"%@?~0129ax.\t_=<"
	for len(docs) < 4000 {
		b := []byte(docs[rnd.IntN(min(len(docs), 400))])
		for range 1 + rnd.IntN(3) {
			at := rnd.IntN(len(b) + 1)
			switch c := signs[rnd.IntN(len(signs))]; rnd.IntN(3) {
			case 0:
				b = append(b[:at:at], append([]byte{c}, b[at:]...)...)
			case 1:
				if at < len(b) {
					b[at] = c
				}
			default:
				if at < len(b) {
					b = append(b[:at:at], b[at+1:]...)
				}
			}
		}
		docs = append(docs, string(b))
	}
	agreed, refused := 0, 0
	for _, doc := range docs {
		if !validText(doc) || unsure.MatchString(doc) {
			continue
		}
		got, err := loadYAML(doc)
		if err != nil {
			refused++
			continue
		}
		want, err := worked(t, r, "yaml", doc)
		if err != nil {
			t.Errorf("%q: Go reads %#v, libyaml says %v", doc, got, err)
		} else if g, w := repacked(t, got), repacked(t, want); !reflect.DeepEqual(g, w) {
			t.Errorf("%q: Go reads %#v, libyaml %#v", doc, g, w)
		} else {
			agreed++
		}
	}
	t.Logf("%d documents: %d read in Go and equal, %d left to libyaml", len(docs), agreed, refused)
	if agreed < len(docs)/3 {
		t.Errorf("Go reads %d of %d documents only", agreed, len(docs))
	}
}

func repacked(t *testing.T, v any) any {
	t.Helper()
	raw, err := value.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := value.Unpack(raw)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
