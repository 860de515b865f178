package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// directives are those of Python's strptime with an equivalent in Go.
var directives = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "1", 'd': "2", 'H': "15", 'I': "3", 'M': "4", 'S': "5", 'p': "PM",
	'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
	'j': "002", '%': "%",
}

// strptime reads a time by a format such as %Y-%m-%dT%H:%M:%S.
func strptime(text, format string) (time.Time, error) {
	var layout strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			if c := format[i]; c >= '0' && c <= '9' {
				return time.Time{},
					errors.New("once_fmt has a digit, which can't be told from a number; leave it out")
			}
			layout.WriteByte(format[i])
			continue
		}
		if i++; i == len(format) {
			return time.Time{}, errors.New("once_fmt ends with a %")
		}
		d, ok := directives[format[i]]
		if !ok {
			return time.Time{},
				fmt.Errorf("once_fmt has %%%c; there are %%Y %%y %%m %%d %%H %%I %%M %%S %%p %%b %%B %%a %%A %%j", format[i])
		}
		layout.WriteString(d)
	}
	t, err := time.Parse(layout.String(), text)
	if err != nil {
		return time.Time{}, fmt.Errorf("it is not of the form %s", format)
	}
	return t, nil
}
