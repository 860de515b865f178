package modules

import (
	"context"
	"errors"
	"strings"
	"unicode"
)

// maxBanner bounds the width of a banner, in characters.
const maxBanner = 1 << 16

func bannerFunctions() []function {
	return []function{
		{name: "slsutil.banner", params: []param{
			opt("width", int64(72)), opt("commentchar", "#"), opt("borderchar", "#"),
			opt("blockstart", nil), opt("blockend", nil), opt("title", nil), opt("text", nil),
			opt("newline", false),
		}, run: banner},
	}
}

// banner is a frame of comments around a title and a text, each wrapped to its width.
func banner(_ context.Context, c *call) (any, error) {
	for name, standard := range map[string]string{
		"title": "THIS FILE IS MANAGED BY SALT - DO NOT EDIT",
		"text":  "The contents of this file are managed by Salt. Any changes to this file may be overwritten automatically and without warning.",
	} {
		if c.any(name) == nil {
			c.named[name] = standard
		}
	}
	for _, name := range []string{"commentchar", "borderchar", "title", "text"} {
		if _, ok := c.any(name).(string); !ok {
			return nil, errors.New(name + " must be text")
		}
	}
	width, ok := c.any("width").(int64)
	if !ok {
		return nil, errors.New("width must be a whole number")
	}
	if width > maxBanner || len(c.text("commentchar")) > maxBanner {
		return nil, errors.New("the banner is too wide")
	}
	comment := c.text("commentchar")
	left, right := rstrip(comment), strings.TrimSpace(comment)
	inner := int(width) - runes(left) - runes(right) - 2
	if inner <= 0 {
		return nil, errors.New("Width is too small to render banner")
	}
	edge := firstRune(c.text("borderchar"))
	border := comment + strings.Repeat(edge, max(0, int(width)-runes(left)-runes(right))) + right
	spacer := comment + strings.Repeat(" ", max(0, int(width)-2*runes(comment))) + comment
	var lines []string
	if v := c.any("blockstart"); v != nil {
		lines = append(lines, text(v))
	}
	lines = append(lines, border, spacer)
	for _, line := range wrap(c.text("title"), inner) {
		pad := inner - runes(line)
		before := pad/2 + pad&inner&1 // as in Python's str.center
		lines = append(lines, left+" "+strings.Repeat(" ", before)+line+
			strings.Repeat(" ", pad-before)+" "+right)
	}
	lines = append(lines, spacer)
	for _, line := range wrap(c.text("text"), inner) {
		lines = append(lines, left+" "+line+strings.Repeat(" ", inner-runes(line))+" "+right)
	}
	lines = append(lines, border)
	if v := c.any("blockend"); v != nil {
		lines = append(lines, text(v))
	}
	out := strings.Join(lines, "\n")
	if c.is("newline") {
		out += "\n"
	}
	return out, nil
}

func runes(s string) int { return len([]rune(s)) }

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

// wrap breaks a text into lines of at most width characters, as Python's textwrap.wrap does.
func wrap(s string, width int) []string {
	var lines []string
	chunks := chunksOf(plainSpaces(s))
	blank := func(chunk []rune) bool { return strings.TrimSpace(string(chunk)) == "" }
	for len(chunks) > 0 {
		if blank(chunks[0]) && len(lines) > 0 {
			chunks = chunks[1:]
		}
		var line [][]rune
		used := 0
		for len(chunks) > 0 && used+len(chunks[0]) <= width {
			used += len(chunks[0])
			line, chunks = append(line, chunks[0]), chunks[1:]
		}
		if len(chunks) > 0 && len(chunks[0]) > width {
			end := longWord(chunks[0], width-used)
			line = append(line, chunks[0][:end])
			chunks[0] = chunks[0][end:]
		}
		if n := len(line); n > 0 && blank(line[n-1]) {
			line = line[:n-1]
		}
		if len(line) > 0 {
			var b strings.Builder
			for _, chunk := range line {
				b.WriteString(string(chunk))
			}
			lines = append(lines, b.String())
		}
	}
	return lines
}

// longWord returns how much of a word fits into room, if the word is too long for any line: up to a
// hyphen, otherwise as much as fits.
func longWord(word []rune, room int) int {
	for i := room - 1; i > 0; i-- {
		if word[i] != '-' {
			continue
		}
		for _, r := range word[:i] {
			if r != '-' {
				return i + 1
			}
		}
		break
	}
	return room
}

// plainSpaces replaces white space by spaces. A tab becomes spaces up to
// the next multiple of eight.
func plainSpaces(s string) []rune {
	var out []rune
	column := 0
	for _, r := range s {
		switch r {
		case '\t':
			for n := 8 - column%8; n > 0; n-- {
				out = append(out, ' ')
				column++
			}
		case '\n', '\r':
			out, column = append(out, ' '), 0
		case '\v', '\f':
			out, column = append(out, ' '), column+1
		default:
			out, column = append(out, r), column+1
		}
	}
	return out
}

// chunksOf splits a text where lines may break: into runs of spaces, words, parts of words that end
// with a hyphen, and dashes.
func chunksOf(s []rune) [][]rune {
	at := func(i int) rune {
		if i < 0 || i >= len(s) {
			return ' '
		}
		return s[i]
	}
	word := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }
	letter := func(r rune) bool { return word(r) && !unicode.IsDigit(r) }
	// reports whether r may be before a dash
	ends := func(r rune) bool { return word(r) || strings.ContainsRune(`!"'&.,?`, r) }
	// the end of a dash at i, 0 if there is none
	dash := func(i int) int {
		end := i
		for at(end) == '-' {
			end++
		}
		if end-i < 2 || !word(at(end)) {
			return 0
		}
		return end
	}
	hyphen := func(i int) bool {
		before := letter(at(i-1)) && (letter(at(i-2)) || at(i-2) == '-' && letter(at(i-3)))
		after := letter(at(i+1)) && (letter(at(i+2)) || at(i+2) == '-' && letter(at(i+3)))
		return at(i) == '-' && before && after
	}
	var out [][]rune
	for i := 0; i < len(s); {
		end := i
		switch {
		case s[i] == ' ':
			for end < len(s) && s[end] == ' ' {
				end++
			}
		case ends(at(i-1)) && dash(i) > 0:
			end = dash(i)
		default:
			for end++; end < len(s) && s[end] != ' '; end++ {
				if hyphen(end) {
					end++
					break
				}
				if ends(at(end-1)) && s[end] == '-' && dash(end) > 0 {
					break
				}
			}
		}
		out = append(out, s[i:end])
		i = end
	}
	return out
}
