package value

import (
	"strconv"
	"strings"
)

// Delimiter separates the parts of a path in Salt, unless an option sets another one.
const Delimiter = ":"

// Traverse follows key through maps and lists; ok reports whether it leads to a value. A text is
// cut at each delimiter (the default one for ""), a list gives the keys one by one, any other key
// is a single key.
//
// In a list an integer is an index unless one of its maps has that integer as a key; other text is
// looked up in the list's maps, and the first match counts. In a map, text that is not a key is
// read as YAML reads it, so "1" finds 1 and "yes" finds True. This is
// salt.utils.data.traverse_dict_and_list of Salt 3006 to 3008.
func Traverse(v any, key any, delimiter string) (found any, ok bool) {
	switch key := key.(type) {
	case string:
		if delimiter == "" {
			delimiter = Delimiter
		}
		for part := range strings.SplitSeq(key, delimiter) {
			if v, ok = step(v, part); !ok {
				return nil, false
			}
		}
		return v, true
	case []any:
		for _, part := range key {
			if v, ok = step(v, part); !ok {
				return nil, false
			}
		}
		return v, true
	}
	return step(v, key)
}

// Follow is Traverse with the path already cut.
func Follow(v any, path []string) (found any, ok bool) {
	for _, part := range path {
		if v, ok = step(v, part); !ok {
			return nil, false
		}
	}
	return v, true
}

func step(v, key any) (any, bool) {
	switch at := Plain(v).(type) {
	case Map:
		if found, ok := at.at(key); ok {
			return found, true
		}
		text, ok := key.(string)
		if !ok {
			return nil, false
		}
		if read, ok := scalar(text); ok {
			return at.at(read)
		}
	case []any:
		return inList(at, key)
	}
	return nil, false
}

// at returns the value of a key of any kind.
func (m Map) at(key any) (any, bool) {
	if text, ok := key.(string); ok {
		return m.Get(text)
	}
	if i := Find(m, key); i >= 0 {
		return m[i].Value, true
	}
	return nil, false
}

func inList(list []any, key any) (any, bool) {
	n, isIndex := index(key)
	if isIndex {
		key = int64(n)
	}
	for _, e := range list {
		if m, ok := Plain(e).(Map); ok {
			if found, ok := m.at(key); ok {
				return found, true
			}
		}
	}
	if n < 0 {
		n += len(list)
	}
	if !isIndex || n < 0 || n >= len(list) {
		return nil, false
	}
	return list[n], true
}

// index is Python's int(key).
func index(key any) (int, bool) {
	switch k := key.(type) {
	case string:
		return ParseInt(k)
	case int64:
		return int(k), true
	case int:
		return k, true
	case float64:
		return int(k), true
	case bool:
		return int(number(k)), true
	}
	return 0, false
}

// scalar reads a key as YAML does, unless YAML reads it as text.
func scalar(s string) (any, bool) {
	switch s {
	case "None", "null", "Null", "NULL", "~":
		return nil, true
	case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON":
		return true, true
	case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF":
		return false, true
	}
	if strings.ContainsAny(s, "_eEpPxXnN") && !strings.HasPrefix(s, "0x") {
		return nil, false // not a plain number, or one that Salt leaves as text
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		n, err := strconv.ParseUint(digits, 16, 63)
		return int64(n), err == nil
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}
