package modules

import (
	"clustermaster/internal/pytext"
	"clustermaster/salt/target"
	"clustermaster/wire"
)

// text is Python's str() of a value, "" for nil.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	}
	return pytext.Str(v)
}

func raw(v any) []byte {
	if b, ok := v.([]byte); ok {
		return b
	}
	return []byte(text(v))
}

func number(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), true
	case float64:
		return int64(v), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// traverse is salt.utils.data.traverse_dict_and_list.
func traverse(v any, key any, delimiter string) (any, bool) {
	switch key := key.(type) {
	case string:
		if delimiter == "" {
			delimiter = target.DefaultDelimiter
		}
		return target.Walk(v, key, delimiter)
	case []any:
		for _, k := range key {
			var ok bool
			if v, ok = target.Walk(v, text(k), "\x00"); !ok {
				return nil, false
			}
		}
		return v, true
	}
	return target.Walk(v, text(key), "\x00")
}

func texts(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

func keys(m wire.Map) []any {
	out := make([]any, len(m))
	for i, p := range m {
		out[i] = p.Key
	}
	return out
}
