package salttrees

import (
	"encoding/json"

	"clustermaster/value"
)

// Pairs prepares a value for JSON, and keeps keys that are no text: a map becomes an object whose
// "pairs" is the list of its keys and values.
func Pairs(v any) any {
	switch v := v.(type) {
	case value.Map:
		list := make([]any, len(v))
		for i, p := range v {
			list[i] = []any{p.Key, Pairs(p.Value)}
		}
		return map[string]any{"pairs": list}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = Pairs(v[i])
		}
		return out
	case float64:
		return json.RawMessage(value.Float(v)) // 1.0 stays a float
	}
	return v
}
