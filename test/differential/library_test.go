package differential

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"clustermaster/salt/render"
	"clustermaster/test/unpacked"
	"clustermaster/value"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if used {
		renderer().Close()
	}
	os.Exit(code)
}

var used bool

// renderer is that of all targets. On a machine that fuzzes much else, its first start may take
// longer than a master would wait.
var renderer = sync.OnceValue(func() *render.Renderer {
	used = true
	r := render.New(render.Options{Dir: unpacked.Dir()}, nil, nil)
	src := render.Source{Path: "first.sls", Data: []byte("first: {{ 1 + 1 }}")}
	var err error
	for range 5 {
		if _, err = r.Render(context.Background(), src, "jinja|yaml", render.Context{}, nil); err == nil {
			return r
		}
	}
	panic(err)
})

// release is the one of Salt that is asked.
const release = "3008.3"

// most is how long an answer may take; libraries.py itself gives up earlier where it can.
const most = 6 * time.Second // Go's fuzzer gives up after ten

// part is one part of an answer of libraries.py.
type part struct {
	kind byte // '=' a result, '!' refused, '~' too long
	body []byte
}

func (p part) String() string {
	switch p.kind {
	case '!':
		return fmt.Sprintf("refused: %s", p.body)
	case '~':
		return "too long"
	}
	return fmt.Sprintf("%q", p.body)
}

// library is a process of Salt's Python. It is started with the first question, and again after one
// that took too long.
type library struct {
	python, part string
	setup        []byte // the first question, if there is one

	mu       sync.Mutex // one question at a time
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      io.ReadCloser
	late     bool // the last answer took too long
	compared int
	left     map[string]int // rule, and how often it left an input out
}

func open(f *testing.F, part string, setup any) *library {
	f.Helper()
	python := filepath.Join(os.Getenv("CLUSTERMASTER_SALT_VENVS"), "salt-"+release, "bin", "python3")
	if _, err := os.Stat(python); err != nil {
		f.Skipf("left out: comparison with Salt's libraries "+
			"(needs salt %s in CLUSTERMASTER_SALT_VENVS; run make venvs)", release)
	}
	l := &library{python: python, part: part, left: map[string]int{}}
	if setup != nil {
		var err error
		if l.setup, err = json.Marshal(setup); err != nil {
			f.Fatal(err)
		}
	}
	if asks() {
		if err := l.start(); err != nil {
			f.Fatal("start Salt's Python: ", err)
		}
	}
	f.Cleanup(func() {
		l.stop()
		l.count(f)
	})
	return l
}

// fuzzing reports whether inputs are made; otherwise they are those that are kept, and none may be
// left out unseen.
func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if fl := flag.Lookup(name); fl != nil && fl.Value.String() != "" &&
			fl.Value.String() != "false" {
			return true
		}
	}
	return false
}

// asks reports whether this process tries inputs. Under go test -fuzz one process only makes them.
func asks() bool {
	return !fuzzing() || flag.Lookup("test.fuzzworker").Value.String() == "true"
}

// warm makes the renderer before the first input, whose time is bounded.
func warm() {
	if asks() {
		renderer()
	}
}

func (l *library) start() error {
	l.cmd = exec.Command(l.python, "-X", "utf8", "testdata/libraries.py", l.part)
	l.cmd.Env = append(os.Environ(), "PYTHONHASHSEED=0")
	l.cmd.Stderr = os.Stderr
	var err1, err2 error
	l.in, err1 = l.cmd.StdinPipe()
	l.out, err2 = l.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, l.cmd.Start()); err != nil {
		return err
	}
	if l.setup == nil {
		return nil
	}
	_, err := l.exchange(l.setup)
	return err
}

func (l *library) stop() {
	if l.cmd != nil {
		l.in.Close()
		_ = l.cmd.Process.Kill()
		_ = l.cmd.Wait()
		l.cmd = nil
	}
}

func (l *library) exchange(question []byte) ([]part, error) {
	if _, err := l.in.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(question))),
		question...)); err != nil {
		return nil, err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(l.out, head); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(l.out, body); err != nil {
		return nil, err
	}
	var parts []part
	for len(body) > 0 {
		n := binary.BigEndian.Uint32(body[1:])
		parts = append(parts, part{body[0], body[5 : 5+n]})
		body = body[5+n:]
	}
	return parts, nil
}

// ask returns what Salt's library answers, n parts; ok is false if that takes too long.
func (l *library) ask(t *testing.T, question []byte) (parts []part, ok bool) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cmd == nil {
		if err := l.start(); err != nil {
			t.Fatal("start Salt's Python: ", err)
		}
	}
	process := l.cmd.Process
	timer := time.AfterFunc(most, func() { _ = process.Kill() })
	parts, err := l.exchange(question)
	l.late = !timer.Stop()
	if err != nil {
		l.stop()
		if !l.late {
			t.Fatal("Salt's Python ended: ", err)
		}
		parts = []part{{'~', nil}}
	}
	if slices.ContainsFunc(parts, func(p part) bool { return p.kind == '~' }) {
		if !fuzzing() {
			t.Fatalf("Salt takes too long: %v", err)
		}
		l.leave("too long")
		return nil, false
	}
	l.compared++
	l.note()
	return parts, true
}

func (l *library) askJSON(t *testing.T, question any) ([]part, bool) {
	t.Helper()
	b, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	return l.ask(t, b)
}

// except notes that a rule leaves a part of an input out.
func (l *library) except(rule string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(rule)
}

func (l *library) leave(rule string) {
	l.left[rule]++
	l.note()
}

// skip leaves out an input that a rule names, if it was made. One that is kept must be compared.
func (l *library) skip(t *testing.T, rule string) {
	t.Helper()
	if !fuzzing() {
		t.Fatalf("a kept input is left out by the rule %q: remove it, or narrow the rule", rule)
	}
	l.mu.Lock()
	l.leave(rule)
	l.mu.Unlock()
	t.Skip(rule)
}

// differ fails for an input on which ours and Salt's differ. If CLUSTERMASTER_FUZZ_FINDINGS names a
// file, a fuzz worker appends the finding to it and goes on, so that one does not hide the others.
func (l *library) differ(t *testing.T, format string, args ...any) {
	t.Helper()
	if path := os.Getenv("CLUSTERMASTER_FUZZ_FINDINGS"); path != "" && fuzzing() {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(f, format+"\n\n", args...)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		l.leave("findings")
		l.mu.Unlock()
		t.SkipNow()
	}
	t.Fatalf(format, args...)
}

// note writes the counts of a fuzz worker, whose own output nobody sees, to the file that
// CLUSTERMASTER_FUZZ_COUNTS names.
func (l *library) note() {
	path := os.Getenv("CLUSTERMASTER_FUZZ_COUNTS")
	total := l.compared
	for _, n := range l.left {
		total += n
	}
	if path != "" && fuzzing() && total%500 == 0 {
		_ = os.WriteFile(path, []byte(l.counts()), 0o644)
	}
}

func (l *library) counts() string {
	s := fmt.Sprintf("%d compared", l.compared)
	for _, rule := range slices.Sorted(maps.Keys(l.left)) {
		s += fmt.Sprintf(", %d left out (%s)", l.left[rule], rule)
	}
	return s + "\n"
}

func (l *library) count(f *testing.F) {
	f.Helper()
	if l.compared == 0 && !fuzzing() {
		f.Error("nothing was compared")
	}
	f.Log(l.counts())
}

// show writes a value with its types and the order of its maps, as libraries.py does.
func show(v any) []byte { return appendShown(nil, v) }

func appendShown(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "None"...)
	case bool:
		if v {
			return append(b, "True"...)
		}
		return append(b, "False"...)
	case int64:
		return fmt.Appendf(b, "i%d", v)
	case uint64:
		return fmt.Appendf(b, "i%d", v)
	case *big.Int:
		return fmt.Appendf(b, "i%d", v)
	case float64:
		if math.IsNaN(v) {
			return append(b, "fnan"...)
		}
		return hex.AppendEncode(append(b, 'f'), binary.BigEndian.AppendUint64(nil, math.Float64bits(v)))
	case string:
		return append(strconv.AppendInt(append(b, 's'), int64(len(v)), 10), ":"+v...)
	case []byte:
		return append(append(strconv.AppendInt(append(b, 'b'), int64(len(v)), 10), ':'), v...)
	case []any:
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendShown(b, x)
		}
		return append(b, ']')
	case value.Map:
		b = append(b, '{')
		for i, p := range python(v) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendShown(append(appendShown(b, p.Key), '='), p.Value)
		}
		return append(b, '}')
	case value.Set:
		var shown [][]byte
		for _, x := range v {
			shown = append(shown, show(x))
		}
		slices.SortFunc(shown, bytes.Compare)
		return append(append(append(b, '<'), bytes.Join(shown, []byte(","))...), '>')
	case value.Time:
		return append(b, "t"+v.Format("20060102T15:04:05.000000")...)
	case value.Const:
		return append(appendShown(append(appendShown(append(b, "c["...), v.Name), ','), v.Value), ']')
	}
	return fmt.Appendf(b, "?%T", v)
}

// python is a map as Python's dict keeps it: of keys that are equal the first stays, with the last
// value.
func python(m value.Map) value.Map {
	out := make(value.Map, 0, len(m))
	seen := map[any]int{}
	for _, p := range m {
		id, ok := value.Identity(p.Key)
		if !ok {
			if i := value.Find(out, p.Key); i >= 0 {
				out[i].Value = p.Value
				continue
			}
		} else if i, ok := seen[id]; ok {
			out[i].Value = p.Value
			continue
		} else {
			seen[id] = len(out)
		}
		out = append(out, p)
	}
	return out
}

// m makes a map.
func m(pairs ...any) value.Map {
	var out value.Map
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}
