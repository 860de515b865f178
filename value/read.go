package value

import (
	"regexp"
	"strconv"
	"strings"
)

var integer = regexp.MustCompile(`^[+-]?[0-9]+(_[0-9]+)*$`)

// ParseInt is Python's int(s) of a text: decimal, with blanks around it and single underscores
// between digits. ok is false for text that is not such a number, and for one that does not fit.
func ParseInt(s string) (int, bool) {
	s = strings.TrimFunc(s, IsSpace)
	if !integer.MatchString(s) {
		return 0, false
	}
	n, err := strconv.Atoi(strings.ReplaceAll(s, "_", ""))
	return n, err == nil
}
