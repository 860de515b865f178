package output

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// fill is Python's textwrap.fill with the same indentation for all lines. White space becomes
// blanks, lines break at blanks and after hyphens, and a word too long for a line is cut.
func fill(text string, width int, indent string) string {
	text = strings.Map(func(r rune) rune {
		switch r {
		case '\t', '\n', '\v', '\f', '\r':
			return ' '
		}
		return r
	}, expandTabs(text))
	chunks := wrapChunks(text)
	var lines []string
	room := width - utf8.RuneCountInString(indent)
	for len(chunks) > 0 {
		if len(lines) > 0 && strings.TrimSpace(chunks[0]) == "" {
			chunks = chunks[1:]
			continue
		}
		var line []string
		used := 0
		for len(chunks) > 0 {
			n := utf8.RuneCountInString(chunks[0])
			if used+n > room {
				break
			}
			line, used, chunks = append(line, chunks[0]), used+n, chunks[1:]
		}
		if len(chunks) > 0 && utf8.RuneCountInString(chunks[0]) > room {
			head := cutLong(chunks[0], max(room-used, 1))
			line, chunks[0] = append(line, head), chunks[0][len(head):]
		}
		if len(line) > 0 && strings.TrimSpace(line[len(line)-1]) == "" {
			line = line[:len(line)-1]
		}
		if len(line) > 0 {
			lines = append(lines, indent+strings.Join(line, ""))
		}
	}
	return strings.Join(lines, "\n")
}

// cutLong returns the part of a word that fits. It ends after a hyphen if one
// follows other characters.
func cutLong(word string, room int) string {
	runes := []rune(word)
	end := min(room, len(runes))
	if room < len(runes) {
		for i := end - 1; i > 0; i-- {
			if runes[i] == '-' && strings.Trim(string(runes[:i]), "-") != "" {
				end = i + 1
				break
			}
		}
	}
	return string(runes[:end])
}

func expandTabs(s string) string {
	if !strings.Contains(s, "\t") {
		return s
	}
	var b strings.Builder
	column := 0
	for _, r := range s {
		switch r {
		case '\t':
			n := 8 - column%8
			b.WriteString(strings.Repeat(" ", n))
			column += n
		case '\n', '\r':
			b.WriteRune(r)
			column = 0
		default:
			b.WriteRune(r)
			column++
		}
	}
	return b.String()
}

// wrapChunks splits a text into pieces between which a line may break: runs of blanks, words, parts
// of words that end with a hyphen between letters, and dashes between words.
func wrapChunks(text string) []string {
	r := []rune(text)
	var chunks []string
	for i := 0; i < len(r); {
		j := i + 1
		switch {
		case r[i] == ' ':
			for j < len(r) && r[j] == ' ' {
				j++
			}
		case dashRun(r, i) > 0:
			j = i + dashRun(r, i)
		default:
			for j < len(r) && r[j] != ' ' && !hyphenBreak(r, i, j) && dashRun(r, j) == 0 {
				j++
			}
		}
		chunks, i = append(chunks, string(r[i:j])), j
	}
	return chunks
}

// dashRun is the length of a run of two or more hyphens at i between words; otherwise 0.
func dashRun(r []rune, i int) int {
	if i == 0 || !wordPunct(r[i-1]) {
		return 0
	}
	j := i
	for j < len(r) && r[j] == '-' {
		j++
	}
	if j-i < 2 || j == len(r) || !wordRune(r[j]) {
		return 0
	}
	return j - i
}

// hyphenBreak reports whether a word that begins at i may break before j: after a hyphen with two
// letters (or letter-letter) before it and two behind it.
func hyphenBreak(r []rune, i, j int) bool {
	if j-1 < i || r[j-1] != '-' {
		return false
	}
	at := func(k int) bool { return k >= 0 && letter(r[k]) }
	before := j >= 3 && at(j-2) && at(j-3) || j >= 4 && at(j-2) && r[j-3] == '-' && at(j-4)
	if !before || j >= len(r) || !letter(r[j]) {
		return false
	}
	k := j + 1
	if k < len(r) && r[k] == '-' {
		k++
	}
	return k < len(r) && letter(r[k])
}

func letter(r rune) bool    { return r == '_' || unicode.IsLetter(r) }
func wordRune(r rune) bool  { return letter(r) || unicode.IsDigit(r) }
func wordPunct(r rune) bool { return wordRune(r) || strings.ContainsRune(`!"'&.,?`, r) }
