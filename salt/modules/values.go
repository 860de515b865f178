package modules

import (
	"clustermaster/value"
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
	return value.Str(v)
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

func keys(m value.Map) []any {
	out := make([]any, len(m))
	for i, p := range m {
		out[i] = p.Key
	}
	return out
}
