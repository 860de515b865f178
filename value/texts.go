package value

// Texts converts a list of texts to a list value.
func Texts(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}
