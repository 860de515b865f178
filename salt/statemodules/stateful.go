package statemodules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"clustermaster/salt/modules"
	"clustermaster/value"
)

// reinterpreted reads what a stateful command reports of itself, as JSON or as name=value pairs in
// its last line, and makes it the state's return.
func reinterpreted(ret value.Map, stateful bool) (value.Map, error) {
	if !stateful {
		return ret, nil
	}
	given, _ := ret.Get("changes")
	done, _ := given.(value.Map)
	ret = ret.Set("changes", value.Map{}).Set("comment", "")
	out := done.String("stdout")
	if out == "" {
		if said := done.String("stderr"); said != "" {
			ret = ret.Set("comment", said)
		}
		return ret, nil
	}
	fail := func(comment string, changes value.Map) (value.Map, error) {
		return ret.Set("comment", comment).Set("result", false).Set("changes", changes), nil
	}
	said, isJSON := decodeJSON(out)
	end := -1
	var data value.Map
	if isJSON {
		m, ok := said.(value.Map)
		if !ok {
			return fail("script JSON output must be a JSON object (e.g., {})!", value.Map{})
		}
		data = m
	} else {
		if end = strings.LastIndexByte(strings.TrimRight(out, " \t\r\n"), '\n'); end >= 0 {
			out = out[end+1:]
		}
		words, err := modules.ShellSplit(out)
		for _, w := range words {
			if strings.Count(w, "=") != 1 {
				err = errors.New("no pair")
				break
			}
			key, val, _ := strings.Cut(w, "=")
			data = data.Set(key, val)
		}
		if err != nil {
			return fail("Failed parsing script output! Stdout must be JSON or a line of name=value pairs.", done)
		}
	}
	changed, err := truthWord(data)
	if err != nil {
		return nil, err
	}
	if said, ok := data.Get("comment"); ok {
		ret, data = ret.Set("comment", said), data.Without("comment")
	}
	if !changed {
		return ret, nil
	}
	for _, p := range done {
		name, _ := p.Key.(string)
		if _, there := data.Get(name); !there {
			data = append(data, p)
		}
	}
	return ret.Set("changes", data.Set("stdout", shown(data.String("stdout"), isJSON, end))), nil
}

// truthWord reads the word changed in a stateful command's report.
func truthWord(data value.Map) (bool, error) {
	v, ok := data.Get("changed")
	if !ok {
		return false, nil
	}
	switch strings.ToLower(value.Str(v)) {
	case "true", "yes", "1":
		return true, nil
	case "false", "no", "0":
		return false, nil
	}
	return false, fmt.Errorf("Failed parsing boolean value: %s",
		value.Str(v)) // Salt's text
}

// shown is the output without the command's report, which is the last line. If that is the only
// line, Salt drops only its last character.
func shown(stdout string, isJSON bool, end int) string {
	switch {
	case isJSON || stdout == "":
		return ""
	case end < 0:
		_, last := utf8.DecodeLastRuneInString(stdout)
		return stdout[:len(stdout)-last]
	}
	return stdout[:min(end, len(stdout))]
}

// maxJSONDepth bounds the nesting of a command's report, because returns are sent and stored.
const maxJSONDepth = 64

var errDeep = errors.New("JSON is nested too deep")

// decodeJSON reads one JSON document and keeps the order of keys.
func decodeJSON(text string) (any, bool) {
	if !json.Valid([]byte(text)) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	v, err := jsonValue(d, maxJSONDepth)
	if err != nil {
		return nil, false
	}
	_, err = d.Token()
	return v, errors.Is(err, io.EOF)
}

func jsonValue(d *json.Decoder, depth int) (any, error) {
	if depth == 0 {
		return nil, errDeep
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return n, nil
		}
		return t.Float64()
	case json.Delim:
		if t == '[' {
			return jsonList(d, depth-1)
		}
		return jsonMap(d, depth-1)
	}
	return token, nil
}

func jsonList(d *json.Decoder, depth int) (any, error) {
	list := []any{}
	for d.More() {
		v, err := jsonValue(d, depth)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := d.Token()
	return list, err
}

// jsonMap reads a map. For a key that occurs twice, the last value counts, in the first place.
func jsonMap(d *json.Decoder, depth int) (any, error) {
	m, at := value.Map{}, make(map[string]int)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		v, err := jsonValue(d, depth)
		if err != nil {
			return nil, err
		}
		if i, twice := at[key]; twice {
			m[i].Value = v
			continue
		}
		at[key] = len(m)
		m = append(m, value.Pair{Key: key, Value: v})
	}
	_, err := d.Token()
	return m, err
}
