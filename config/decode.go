package config

import (
	"fmt"
	"math"
	"math/big"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
	"clustermaster/value/yaml11"
)

// kinds describes each type of the table for users.
var kinds = map[string]string{
	"str": "text", "bool": "True or False", "int": "a whole number", "float": "a number",
	"list": "a list", "dict": "a mapping", "null": "nothing",
}

// describe names the type of a value as an operator wrote it.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "empty"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		if len(v) > 40 {
			v = v[:40] + "..."
		}
		return fmt.Sprintf("the text %q", v)
	case int64, uint64, *big.Int:
		return fmt.Sprintf("the number %v", v)
	case float64:
		return "the number " + strings.TrimSuffix(string(yaml11.Dump(v)), "\n")
	case []any:
		return "a list"
	case value.Map:
		return "a mapping"
	}
	return "a value that isn't plain data"
}

// conform checks a value against the types of the table.
func conform(types []string, v any) error {
	for _, t := range types {
		ok := false
		switch t {
		case "any":
			ok = true
		case "null":
			ok = v == nil
		case "str":
			ok = isText(v)
		case "bool":
			_, ok = v.(bool)
		case "int":
			_, ok = whole(v)
		case "float":
			_, ok = number(v)
		case "list":
			_, ok = v.([]any)
		case "dict":
			_, ok = v.(value.Map)
			ok = ok || isEmptyList(v)
		}
		if ok {
			return nil
		}
	}
	return fmt.Errorf("is %s; %s is needed", describe(v), needed(types))
}

func needed(types []string) string {
	var names []string
	for _, t := range types {
		if t != "null" {
			names = append(names, kinds[t])
		}
	}
	slices.Sort(names)
	return strings.Join(names, " or ")
}

func isText(v any) bool {
	switch v.(type) {
	case string, int64, uint64, float64, *big.Int:
		return true
	}
	return false
}

// whole reads a whole number, also in quotes or with .0 at its end.
func whole(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case float64:
		return int64(v), v == math.Trunc(v) && math.Abs(v) < 1<<53
	case string:
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		return n, err == nil
	}
	return 0, false
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return 0, false
}

// texts returns a text or a list of texts as a list.
func texts(v any) ([]string, bool) {
	switch v := v.(type) {
	case nil:
		return nil, true
	case string:
		if v == "" {
			return nil, true
		}
		return []string{v}, true
	case []any:
		list := make([]string, len(v))
		for i, x := range v {
			if !isText(x) {
				return nil, false
			}
			list[i] = value.Str(x)
		}
		return list, true
	}
	return nil, false
}

// assign sets a field of Options. nil empties the field.
func assign(field reflect.Value, tag reflect.StructTag, v any) error {
	if v == nil {
		field.SetZero()
		return nil
	}
	if field.Kind() == reflect.Interface {
		field.Set(reflect.ValueOf(v))
		return nil
	}
	switch field.Interface().(type) {
	case string, Secret:
		if !isText(v) {
			return fmt.Errorf("is %s; text is needed, so put it in quotes", describe(v))
		}
		s := value.Str(v)
		if allowed := tag.Get("oneof"); allowed != "" &&
			!slices.Contains(strings.Fields(allowed), strings.ToLower(s)) {
			return fmt.Errorf("is %q; one of %s is needed", s,
				strings.Join(strings.Fields(allowed), ", "))
		}
		field.SetString(s)
	case bool:
		b, ok := v.(bool)
		if !ok {
			return fmt.Errorf("is %s; True or False is needed", describe(v))
		}
		field.SetBool(b)
	case int:
		n, ok := whole(v)
		if !ok {
			return fmt.Errorf("is %s; a whole number is needed", describe(v))
		}
		if err := within(tag, float64(n)); err != nil {
			return err
		}
		field.SetInt(n)
	case float64:
		f, ok := number(v)
		if !ok {
			return fmt.Errorf("is %s; a number is needed", describe(v))
		}
		if err := within(tag, f); err != nil {
			return err
		}
		field.SetFloat(f)
	case time.Duration:
		f, ok := number(v)
		if !ok {
			return fmt.Errorf("is %s; a number is needed", describe(v))
		}
		if err := within(tag, f); err != nil {
			return err
		}
		unit := map[string]time.Duration{"": time.Second, "ms": time.Millisecond,
			"m": time.Minute}[tag.Get("unit")]
		if limit := float64(math.MaxInt64 / unit / 2); math.Abs(f) > limit {
			return fmt.Errorf("is %v; at most %.0f is possible", f, limit)
		}
		field.SetInt(int64(f * float64(unit)))
	case []string:
		list, ok := texts(v)
		if !ok {
			return fmt.Errorf("is %s; a list of texts is needed", describe(v))
		}
		field.Set(reflect.ValueOf(list))
	case []any:
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("is %s; a list is needed", describe(v))
		}
		field.Set(reflect.ValueOf(list))
	case value.Map:
		m, err := mapping(v)
		if err != nil {
			return err
		}
		field.Set(reflect.ValueOf(m))
	case Roots:
		r, err := roots(v)
		if err != nil {
			return err
		}
		field.Set(reflect.ValueOf(r))
	}
	return nil
}

func within(tag reflect.StructTag, n float64) error {
	low, high := math.Inf(-1), math.Inf(1)
	if s := tag.Get("min"); s != "" {
		low, _ = strconv.ParseFloat(s, 64)
	}
	if s := tag.Get("max"); s != "" {
		high, _ = strconv.ParseFloat(s, 64)
	}
	switch {
	case n >= low && n <= high:
		return nil
	case math.IsInf(high, 1):
		return fmt.Errorf("is %v; at least %.0f is needed", n, low)
	}
	return fmt.Errorf("is %v; a number from %.0f to %.0f is needed", n, low, high)
}

// mapping reads a mapping, or as Salt does for nodegroups a list of mappings of one key.
func mapping(v any) (value.Map, error) {
	switch v := v.(type) {
	case value.Map:
		return v, nil
	case []any:
		m := value.Map{}
		for _, x := range v {
			one, ok := x.(value.Map)
			if !ok || len(one) != 1 {
				return nil,
					fmt.Errorf("is a list; a mapping or a list of mappings with one key each is needed")
			}
			m = m.Set(value.Str(one[0].Key), one[0].Value)
		}
		return m, nil
	}
	return nil, fmt.Errorf("is %s; a mapping is needed", describe(v))
}

func roots(v any) (Roots, error) {
	m, ok := v.(value.Map)
	if !ok {
		return nil,
			fmt.Errorf("is %s; a mapping of environment to list of folders is needed, like {base: [/srv/salt]}", describe(v))
	}
	r := make(Roots, 0, len(m))
	for _, e := range m {
		env := Env{Name: value.Str(e.Key)}
		list, ok := e.Value.([]any)
		if !ok && e.Value != nil {
			return nil,
				fmt.Errorf("environment %s is %s; a list of folders is needed, like [/srv/salt]",
					env.Name, describe(e.Value))
		}
		for _, x := range list {
			if !isText(x) {
				return nil,
					fmt.Errorf("environment %s has %s in its list; names of folders are needed",
						env.Name, describe(x))
			}
			dir := value.Str(x)
			// Other paths are not looked at: a file server that hangs must stop no command.
			dirs := []string{dir}
			if fnmatch.Magic(dir) {
				if matches := fnmatch.Glob(filepath.Clean(dir)); len(matches) > 0 {
					dirs = matches
				}
			}
			env.Dirs, env.Listed = append(env.Dirs, dirs...), append(env.Listed, dir)
		}
		r = append(r, env)
	}
	return r, nil
}
