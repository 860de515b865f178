package gitfs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// text returns a value of the configuration as Python writes it.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case int:
		return strconv.Itoa(v)
	case float64:
		s := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	return fmt.Sprint(v)
}

// texts returns a list, or a text with commas, as a list.
func texts(v any) []string {
	var out []string
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		for _, e := range v {
			out = append(out, text(e))
		}
		return out
	case []string:
		return slices.Clone(v)
	}
	s := text(v)
	if s == "" {
		return nil
	}
	for part := range strings.SplitSeq(s, ",") {
		out = append(out, strings.TrimSpace(part))
	}
	return out
}

// truth is Python's bool of a value.
func truth(v any, set bool) bool {
	if !set {
		return false
	}
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case int64:
		return v != 0
	case int:
		return v != 0
	case float64:
		return v != 0
	}
	return true
}

func sorted[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// unreadable returns why a file can't be read; "" if it can.
func unreadable(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "can't be read: " + strings.TrimPrefix(err.Error(), "open "+path+": ")
	}
	f.Close()
	return ""
}

// mirrorKey makes the name of a remote's mirror. Remotes that fetch the same in the same way share
// one. It contains no secret.
func mirrorKey(r *Remote) string {
	h := sha256.New()
	for _, s := range append([]string{r.URL, r.Access.User, r.Access.Privkey},
		slices.Sorted(slices.Values(r.Refspecs))...) {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
