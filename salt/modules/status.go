package modules

import (
	"context"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"
)

// statusFunctions are those of the family that pillars use, such as for the name of a backup.
func statusFunctions() []function {
	return []function{
		{name: "status.time", params: []param{opt("format", "%A, %d. %B %Y %I:%M%p")},
			run: func(_ context.Context, c *call) (any, error) {
				return timeText(c.text("format"), time.Now()), nil
			}},
	}
}

// naive removes from a format the directives for which Python's times without a zone have no text,
// and turns those that only the library has into plain text.
var naive = strings.NewReplacer("%%", "%%", "%Z", "", "%z", "", "%Q", "%%Q")

// timeText formats a time as Python's datetime.strftime does.
func timeText(format string,
	t time.Time) string {
	return strftime.Format(naive.Replace(format), t)
}
