package modules

import (
	"context"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"
)

// statusFunctions are the functions of status that pillars use, for example
// in the name of a backup.
func statusFunctions() []function {
	return []function{
		{name: "status.time", params: []param{opt("format", "%A, %d. %B %Y %I:%M%p")},
			run: func(_ context.Context, c *call) (any, error) {
				return timeText(c.text("format"), time.Now()), nil
			}},
	}
}

// naive adapts a format to Python's times without a zone: it removes the directives that print
// nothing for them, and turns those that only this library knows into plain text.
var naive = strings.NewReplacer("%%", "%%", "%Z", "", "%z", "", "%Q", "%%Q")

// timeText formats a time as Python's datetime.strftime does.
func timeText(format string,
	t time.Time) string {
	return strftime.Format(naive.Replace(format), t)
}
