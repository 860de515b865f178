package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/cronexpr"

	"clustermaster/value/dateutil"
)

// cron is a line of cron: minute, hour, day, month, day of the week, and optionally second.
type cron struct{ expr *cronexpr.Expression }

// next is the first time after t, on t's clock; zero if there is none.
func (c cron) next(t time.Time) time.Time {
	// The library calculates with a clock without summer time, as Salt does; the result is
	// converted back to the wall clock.
	wall := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(),
		t.Nanosecond(), time.UTC)
	n := c.expr.Next(wall)
	if n.IsZero() {
		return n
	}
	return dateutil.OnClock(n, t.Location())
}

var cronNames = map[string]string{"@midnight": "@daily", "@annually": "@yearly"}

var weekdays = map[string]int{"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}

// parseCron reads the dialect of the Python library croniter, which Salt uses: the second comes
// last, and ranges may wrap around.
func parseCron(text string) (cron, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if full, ok := cronNames[text]; ok {
		text = full
	}
	if strings.HasPrefix(text, "@") {
		return newCron(text)
	}
	fields := strings.Fields(text)
	if len(fields) != 5 && len(fields) != 6 {
		return cron{},
			fmt.Errorf("%d fields; write minute, hour, day, month, day of the week and perhaps second", len(fields))
	}
	second := "0"
	if len(fields) == 6 {
		second = fields[5]
	}
	bounds := [6][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}, {0, 59}}
	all := append(fields[:5:5], second)
	for i, f := range all {
		var err error
		if all[i], err = cronField(f, i, bounds[i]); err != nil {
			return cron{}, err
		}
	}
	return newCron(strings.Join([]string{all[5], all[0], all[1], all[2], all[3], all[4], "*"}, " "))
}

func newCron(text string) (cron, error) {
	expr, err := cronexpr.Parse(text)
	if err != nil {
		return cron{}, err
	}
	return cron{expr}, nil
}

const dayField, weekdayField = 2, 4

// cronField converts a field to the library's syntax.
func cronField(f string, at int, bound [2]int) (string, error) {
	if strings.Contains(f, "?") && (f != "?" || at != dayField && at != weekdayField) {
		return "", errors.New("a ? stands for a whole day or day of the week only")
	}
	parts := strings.Split(f, ",")
	for i, p := range parts {
		if at == weekdayField {
			if last, ok := strings.CutPrefix(p, "l"); ok && last != "" {
				parts[i] = last + "l"
				continue
			}
			if strings.HasSuffix(p, "l") && p != "l" {
				return "", fmt.Errorf("%q is not a day of the week; write l5 for the last Friday", p)
			}
		}
		span, step, stepped := strings.Cut(p, "/")
		from, to, ranged := strings.Cut(span, "-")
		if !ranged {
			continue
		}
		a, aok := cronNumber(from, at)
		b, bok := cronNumber(to, at)
		if !aok || !bok || a < b && b <= bound[1] {
			continue // the library checks it
		}
		n := 1
		if stepped {
			var err error
			if n, err = strconv.Atoi(step); err != nil || n < 1 {
				return "", fmt.Errorf("%q is not a step", step)
			}
		}
		list, err := cronSpan(a, b, n, bound, at == weekdayField)
		if err != nil {
			return "", fmt.Errorf("%q: %w", p, err)
		}
		parts[i] = list
	}
	return strings.Join(parts, ","), nil
}

func cronNumber(s string, at int) (int, bool) {
	if n, ok := weekdays[s]; ok && at == weekdayField {
		return n, true
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// cronSpan lists a range that wraps around, or has Sunday as 7.
func cronSpan(from, to, step int, bound [2]int, week bool) (string, error) {
	if week && to == 7 && from <= 7 {
		var list []string
		for n := from; n <= 7; n += step {
			list = append(list, strconv.Itoa(n%7))
		}
		return strings.Join(list, ","), nil
	}
	if from < bound[0] || from > bound[1] || to < bound[0] || to > bound[1] {
		return "", fmt.Errorf("a number is not between %d and %d", bound[0], bound[1])
	}
	round := bound[1] - bound[0] + 1
	var list []string
	for n := from; n <= to+round; n += step {
		list = append(list, strconv.Itoa((n-bound[0])%round+bound[0]))
		if from == to {
			break
		}
	}
	return strings.Join(list, ","), nil
}
