package value

// Truth is Python's bool(v) of a wire value.
func Truth(v any) bool {
	switch x := Plain(v).(type) {
	case nil:
		return false
	case bool:
		return x
	case string:
		return x != ""
	case []byte:
		return len(x) > 0
	case float64:
		return x != 0
	case []any:
		return len(x) > 0
	case Map:
		return len(x) > 0
	case Set:
		return len(x) > 0
	default:
		if s, ok := Int(x); ok {
			return s != "0"
		}
		return true
	}
}
