// Package dateutil reads times that people write, as Python's dateutil does: "Monday 5:00pm",
// "2026-12-24 18:00", "March 16 2015" or "8:30".
package dateutil

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// When is what such a text means: a time on some day, or a day.
type When struct {
	ymd     []int // numbers of the date, in order; a month's name is one of them
	month   int   // index in ymd of a month's name; -1 for none
	year    int   // index in ymd of a number that is a year by its length; -1 for none
	weekday int   // 0 is Sunday; -1 for none

	hour, minute, second, nano int
	timed                      bool
}

var weekdayNames = map[string]int{
	"sun": 0, "sunday": 0, "mon": 1, "monday": 1, "tue": 2, "tues": 2, "tuesday": 2, "wed": 3,
	"wednesday": 3,
	"thu":       4, "thurs": 4, "thursday": 4, "fri": 5, "friday": 5, "sat": 6, "saturday": 6,
}

var monthNames = map[string]int{
	"jan": 1, "january": 1, "feb": 2, "february": 2, "mar": 3, "march": 3, "apr": 4, "april": 4,
	"may": 5, "jun": 6, "june": 6,
	"jul": 7, "july": 7, "aug": 8, "august": 8, "sep": 9, "sept": 9, "september": 9, "oct": 10,
	"october": 10, "nov": 11, "november": 11, "dec": 12, "december": 12,
}

// Parse reads what dateutil's parser, which Salt uses, reads: times, days of the week and dates, in
// any order. It refuses time zones: Salt can't compare them with the master's own clock. The error
// says what is wrong with the text, and not what to write.
func Parse(text string) (When, error) {
	p := parser{When: When{month: -1, year: -1, weekday: -1}, tokens: split(text)}
	err := p.run()
	if err == nil {
		_, err = p.On(time.Date(2024, 1, 31, 0, 0, 0, 0, time.UTC))
	}
	if err != nil {
		return When{}, fmt.Errorf("%q: %w", text, err)
	}
	return p.When, nil
}

// split cuts a text into numbers, words and single other characters.
func split(text string) []string {
	var out []string
	kind := func(r rune) int {
		switch {
		case r >= '0' && r <= '9':
			return 1
		case unicode.IsLetter(r):
			return 2
		}
		return 0
	}
	last := 0
	for _, r := range strings.ToLower(text) {
		k := kind(r)
		if k != 0 && k == last {
			out[len(out)-1] += string(r)
		} else {
			out = append(out, string(r))
		}
		last = k
	}
	return out
}

type parser struct {
	When
	tokens []string
	at     int
}

// peek returns the n-th token from here, or "".
func (p *parser) peek(n int) string {
	if p.at+n < len(p.tokens) {
		return p.tokens[p.at+n]
	}
	return ""
}

func number(s string) (int, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' || len(s) > 9 {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

func (p *parser) run() error {
	if len(strings.TrimSpace(strings.Join(p.tokens, ""))) == 0 {
		return errors.New("it is empty")
	}
	for p.at < len(p.tokens) {
		token := p.peek(0)
		var err error
		switch {
		case token[0] >= '0' && token[0] <= '9':
			err = p.number(token)
		case unicode.IsLetter([]rune(token)[0]):
			err = p.word(token)
		case strings.ContainsAny(token, " .,;-/'"):
			p.at++
		default:
			err = fmt.Errorf("it has a %q", token)
		}
		if err != nil {
			return err
		}
	}
	if len(p.ymd) > 3 {
		return errors.New("its date has more than three parts")
	}
	if !p.timed && len(p.ymd) == 0 && p.weekday < 0 {
		return errors.New("it has neither a time nor a date")
	}
	return nil
}

func (p *parser) word(token string) error {
	p.at++
	if day, ok := weekdayNames[token]; ok {
		p.weekday = day
		return nil
	}
	if month, ok := monthNames[token]; ok {
		if p.month >= 0 {
			return errors.New("it has two months")
		}
		p.month = len(p.ymd)
		p.ymd = append(p.ymd, month)
		return nil
	}
	switch token {
	case "am", "pm", "a", "p":
		if !p.timed {
			return fmt.Errorf("there is no hour before %q", token)
		}
		p.half(token)
		return nil
	case "at", "on", "and", "ad", "of", "st", "nd", "rd", "th", "t":
		return nil
	case "utc", "gmt", "z":
		return errors.New("times are in the master's own zone: leave the zone out")
	}
	return fmt.Errorf("%q is neither a day, a month nor a part of the day", token)
}

// half applies a.m. or p.m. to an hour, and consumes the rest of the token.
func (p *parser) half(token string) {
	if p.peek(0) == "." && p.peek(1) == "m" {
		p.at += 2
	}
	if token[0] == 'p' && p.hour < 12 {
		p.hour += 12
	} else if token[0] == 'a' && p.hour == 12 {
		p.hour = 0
	}
}

// afterBlank returns the next token that is not a blank, and its distance.
func (p *parser) afterBlank() (string, int) {
	if p.peek(1) == " " {
		return p.peek(2), 2
	}
	return p.peek(1), 1
}

func (p *parser) number(token string) error {
	n, ok := number(token)
	next, away := p.afterBlank()
	switch {
	case len(token) == 8 || len(token) == 12 ||
		len(token) == 14: // 20261224, and with 1800 or 180000
		p.at++
		return p.block(token)
	case !ok:
		return fmt.Errorf("%s is too long", token)
	case p.peek(1) == ":":
		return p.clock(n)
	case next == "am" || next == "pm" || next == "a" || next == "p":
		p.hour, p.timed = n, true
		p.at += away + 1
		p.half(next)
		return nil
	case next == "h" || next == "hour" || next == "hours":
		p.hour, p.timed = n, true
		p.at += away + 1
		return nil
	case next == "m" || next == "minute" || next == "minutes":
		p.minute, p.timed = n, true
		p.at += away + 1
		return nil
	case next == "s" || next == "second" || next == "seconds":
		p.second, p.timed = n, true
		p.at += away + 1
		return nil
	case len(p.ymd) == 3 && (len(token) == 4 || len(token) == 6): // 1800 after a date
		p.at++
		p.hour, p.timed = n, true
		if p.minute = n % 100; len(token) == 6 {
			p.second, p.minute, p.hour = n%100, n/100%100, n/100
		}
		p.hour /= 100
		return nil
	}
	if len(token) > 2 {
		p.year = len(p.ymd)
	}
	p.ymd = append(p.ymd, n)
	p.at++
	return nil
}

// block reads digits without separators.
func (p *parser) block(token string) error {
	if len(p.ymd) > 0 {
		return errors.New("it has two dates")
	}
	var parts [6]int
	for i, cut := 0, 0; cut < len(token); i++ {
		width := 2
		if i == 0 {
			width = 4
		}
		parts[i], _ = number(token[cut : cut+width])
		cut += width
	}
	p.year, p.ymd = 0, parts[:3]
	if len(token) > 8 {
		p.hour, p.minute, p.second, p.timed = parts[3], parts[4], parts[5], true
	}
	return nil
}

// clock reads hour:minute, and optionally :second and a fraction.
func (p *parser) clock(hour int) error {
	minute, ok := number(p.peek(2))
	if !ok {
		return errors.New("there are no minutes after the hour")
	}
	p.hour, p.minute, p.timed = hour, minute, true
	p.at += 3
	if p.peek(0) != ":" {
		return nil
	}
	if p.second, ok = number(p.peek(1)); !ok {
		return errors.New("there are no seconds after the minutes")
	}
	p.at += 2
	if fraction := p.peek(1); p.peek(0) == "." && fraction != "" && fraction[0] >= '0' &&
		fraction[0] <= '9' {
		p.nano, _ = number((fraction + "000000")[:6])
		p.nano *= 1000
		p.at += 2
	}
	if sign := p.peek(0); sign == "+" || sign == "-" && p.timed {
		return errors.New("times are in the master's own zone: leave the zone out")
	}
	return nil
}

// date resolves year, month and day; it returns 0 for those that the text does not give.
func (w When) date(now time.Time) (year, month, day int) {
	v := w.ymd
	century := func(y int, i int) int {
		if i == w.year || y >= 100 {
			return y
		}
		y += now.Year() / 100 * 100
		if y >= now.Year()+50 {
			y -= 100
		} else if y < now.Year()-50 {
			y += 100
		}
		return y
	}
	yearish := func(i int) bool { return i == w.year || v[i] > 31 }
	switch len(v) {
	case 1:
		switch {
		case w.month == 0:
			return 0, v[0], 0
		case yearish(0):
			return century(v[0], 0), 0, 0
		}
		return 0, 0, v[0]
	case 2:
		switch {
		case w.month >= 0:
			other := 1 - w.month
			if yearish(other) {
				return century(v[other], other), v[w.month], 0
			}
			return 0, v[w.month], v[other]
		case yearish(0):
			return century(v[0], 0), v[1], 0
		case yearish(1):
			return century(v[1], 1), v[0], 0
		}
		return 0, v[0], v[1]
	case 3:
		y, m, d := 2, 0, 1 // month, day, year
		switch w.month {
		case 0:
			if yearish(1) {
				y, m, d = 1, 0, 2
			}
		case 1:
			if y, m, d = 2, 1, 0; yearish(0) {
				y, m, d = 0, 1, 2
			}
		case 2:
			if y, m, d = 0, 2, 1; yearish(1) {
				y, m, d = 1, 2, 0
			}
		default:
			switch {
			case yearish(0):
				y, m, d = 0, 1, 2
			case v[0] > 12:
				y, m, d = 2, 1, 0
			}
		}
		return century(v[y], y), v[m], v[d]
	}
	return 0, 0, 0
}

// On returns the time that the text means on the day of now. It takes missing parts from that day;
// a day of the week means its next occurrence, which may be that day.
func (w When) On(now time.Time) (time.Time, error) {
	year, month, day := w.date(now)
	if year == 0 {
		year = now.Year()
	}
	if month == 0 {
		month = int(now.Month())
	}
	last := time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
	given := day != 0
	if !given {
		day = min(now.Day(), last)
	}
	if month < 1 || month > 12 || day < 1 || day > last || w.hour > 23 || w.minute > 59 ||
		w.second > 59 {
		return time.Time{}, errors.New("there is no such time")
	}
	t := time.Date(year, time.Month(month), day, w.hour, w.minute, w.second, w.nano, time.UTC)
	if w.weekday >= 0 && !given {
		t = t.AddDate(0, 0, (w.weekday-int(t.Weekday())+7)%7)
	}
	return OnClock(t, now.Location()), nil
}

// OnClock returns when the clock of a place shows what wall shows in UTC. If summer time skips
// that, it is the moment at which the clock is put forward.
func OnClock(wall time.Time, place *time.Location) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(),
		wall.Second(), wall.Nanosecond(), place)
	_, offset := t.Zone()
	start, end := t.ZoneBounds()
	switch shown := t.Add(time.Duration(offset) * time.Second); {
	case shown.Before(wall):
		return end
	case shown.After(wall):
		return start
	}
	return t
}
