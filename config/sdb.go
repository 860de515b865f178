package config

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"clustermaster/salt/saltpython"
	"clustermaster/value"
)

// sdbTimeout bounds the look-up of all sdb:// addresses of a configuration.
const sdbTimeout = 60 * time.Second

// maxSDB bounds the output of the look-up, in bytes.
const maxSDB = 1 << 20

// sdbProgram looks addresses up with Salt's own drivers.
//
//go:embed sdb.py
var sdbProgram string

// isSDB reports whether a value is an sdb:// address.
func isSDB(v any) bool {
	s, ok := v.(string)
	return ok && strings.HasPrefix(s, "sdb://")
}

// addresses lists the sdb:// addresses in a value, at any depth.
func addresses(v any) []string {
	var out []string
	switch v := v.(type) {
	case string:
		if isSDB(v) {
			out = append(out, v)
		}
	case value.Map:
		for _, e := range v {
			out = append(out, addresses(e.Value)...)
		}
	case []any:
		for _, e := range v {
			out = append(out, addresses(e)...)
		}
	}
	return out
}

// replaced returns v with each address replaced by its value.
func replaced(v any, found map[string]any) any {
	switch v := v.(type) {
	case string:
		if got, ok := found[v]; ok {
			return got
		}
	case value.Map:
		out := slices.Clone(v)
		for i, e := range out {
			out[i].Value = replaced(e.Value, found)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i, e := range out {
			out[i] = replaced(e, found)
		}
		return out
	}
	return v
}

// unread is put before the address of a secret that a command does not look up.
const unread = "not read by commands: "

// resolve replaces the sdb:// addresses of options by their values, as Salt does; for a command it
// does so only for options of Options that are not secrets. If a look-up fails, the option is
// refused and keeps its address.
func (l *loader) resolve(values value.Map) value.Map {
	wanted := func(e value.Pair) bool {
		name, _ := e.Key.(string)
		k, known := table()[name]
		return !l.command || known && k.field >= 0 && !isSecret(name)
	}
	var all []string
	for _, e := range values {
		if wanted(e) {
			all = append(all, addresses(e.Value)...)
		}
	}
	out := slices.Clone(values)
	for i, e := range out {
		if name, _ := e.Key.(string); l.command && isSecret(name) && isSDB(e.Value) {
			out[i].Value = unread + value.Str(e.Value)
		}
	}
	if len(all) == 0 {
		return out
	}
	slices.Sort(all)
	found, failed, err := lookUp(l.o.ConfFile, values.String("python_host"), slices.Compact(all))
	for i, e := range out {
		name, _ := e.Key.(string)
		if !wanted(e) {
			continue
		}
		for _, address := range addresses(e.Value) {
			switch _, ok := found[address]; {
			case err != nil:
				l.refuse(name, "is an sdb:// address, which Salt's drivers look up: %v", err)
			case failed[address] != "":
				l.refuse(name, "%s can't be looked up: %s", address, failed[address])
			case !ok:
				l.refuse(name,
					"%s is the address of no profile: an option of that name with a driver is needed",
					address)
			default:
				continue
			}
			break
		}
		out[i].Value = replaced(e.Value, found)
	}
	return out
}

// lookUp asks Salt for the values of addresses. An address that belongs to none of Salt's profiles
// is in neither map.
func lookUp(confFile, pythonHost string, all []string) (found map[string]any,
	failed map[string]string, err error) {
	python, err := saltpython.Find(pythonHost)
	if err != nil {
		return nil, nil, err
	}
	question, err := json.Marshal(map[string]any{"conf_file": confFile, "addresses": all})
	if err != nil {
		return nil, nil, fmt.Errorf("pack addresses: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sdbTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", sdbProgram)
	cmd.Stdin, cmd.Dir = bytes.NewReader(question), "/"
	cmd.WaitDelay = time.Second
	out := &bounded{left: maxSDB}
	words := &bounded{left: 64 << 10}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = words, words, []*os.File{write}
	if err = cmd.Start(); err != nil {
		read.Close()
		write.Close()
		return nil, nil, fmt.Errorf("run %s: %w", python, err)
	}
	write.Close()
	done := make(chan error, 1)
	go func() {
		_, err := out.ReadFrom(read)
		read.Close()
		done <- err
	}()
	err = cmd.Wait()
	if rerr := <-done; err == nil {
		err = rerr
	}
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("no answer within %s", sdbTimeout)
	}
	var answer struct {
		Found  map[string]any
		Failed map[string]string
	}
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(out.text))
		decoder.UseNumber()
		err = decoder.Decode(&answer)
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(words.text)), "\n")
		return nil, nil, fmt.Errorf("%s: %w: %s", python, err, lines[len(lines)-1])
	}
	for address, v := range answer.Found {
		answer.Found[address] = ofJSON(v)
	}
	return answer.Found, answer.Failed, nil
}

// ofJSON converts a value to the types that the configuration's reader makes.
func ofJSON(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = ofJSON(v[i])
		}
	case map[string]any:
		out := make(value.Map, 0, len(v))
		for name, e := range v {
			out = append(out, value.Pair{Key: name, Value: ofJSON(e)})
		}
		slices.SortFunc(out,
			func(a, b value.Pair) int { return strings.Compare(a.Key.(string), b.Key.(string)) })
		return out
	}
	return v
}

var errLong = errors.New("the answer is too long")

// bounded keeps the bytes written to it, up to a bound.
type bounded struct {
	text []byte
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.text = append(b.text, p[:n]...)
	b.left -= n
	return len(p), nil
}

// ReadFrom reads to the end; input that is too long gives an error.
func (b *bounded) ReadFrom(from *os.File) (int64, error) {
	buf, n := make([]byte, 16<<10), int64(0)
	for {
		got, err := from.Read(buf)
		n += int64(got)
		if got > b.left {
			return n, errLong
		}
		_, _ = b.Write(buf[:got])
		if err != nil {
			return n, nil // the end of a pipe
		}
	}
}
