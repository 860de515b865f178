package wire

import (
	"fmt"
	"strings"
)

// PlainID reports whether an id has only ASCII letters, digits and ._@:-, and does not begin with
// "-". Shells, globs, YAML and command lines then read it as plain text. Other ids are valid too;
// callers must quote or refuse them in such places.
func PlainID(id string) bool {
	if id == "" || id[0] == '-' {
		return false
	}
	for i := range len(id) {
		switch b := id[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b &&
			b <= '9', strings.IndexByte("._@:-", b) >= 0:
		default:
			return false
		}
	}
	return true
}

// QuotedID returns an id as one word of a shell's command line. It fails if a shell could pass the
// id on as an option, or as more than one line.
func QuotedID(id string) (string, error) {
	switch {
	case PlainID(id):
		return id, nil
	case strings.HasPrefix(id, "-"):
		return "", fmt.Errorf("the minion id %q begins like an option", id)
	}
	return quoteID(id)
}

// quoteID is QuotedID for an id that follows other text of a word.
func quoteID(id string) (string, error) {
	if strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xa0 }) {
		return "", fmt.Errorf("the minion id %q has control characters in it", id)
	}
	if id != "" && PlainID("x"+id) {
		return id, nil
	}
	return "'" + strings.ReplaceAll(id, "'", `'\''`) + "'", nil
}

// CommandFor replaces each %s in an operator's command line by a minion's id, as one word or a part
// of one. It leaves plain ids unquoted, and quotes others to fit the quotes around %s. It fails if
// no quoting keeps a shell from reading the id: because the line passes it to another shell, splits
// output into words, or the id would be an option.
func CommandFor(command, id string) (string, error) {
	if !strings.Contains(command, "%s") || PlainID(id) {
		return strings.ReplaceAll(command, "%s", id), nil
	}
	quoted, err := quoteID(id)
	if err != nil {
		return "", err
	}
	for _, nested := range []string{"`", "$(", "${", "$'", `$"`, "<<", "#"} {
		if strings.Contains(command, nested) {
			return "", fmt.Errorf("the minion id %q can't be quoted in a command line with %s", id,
				nested)
		}
	}
	var out strings.Builder
	var word strings.Builder // the present one, without its quotes
	quote, opened := byte(0), 0
	for i := 0; i < len(command); i++ {
		switch b := command[i]; {
		case strings.HasPrefix(command[i:], "%s"):
			if word.Len() == 0 && strings.HasPrefix(id, "-") {
				return "", fmt.Errorf("the minion id %q begins like an option", id)
			}
			if quote != 0 {
				if end := strings.IndexByte(command[i:], quote); end < 0 ||
					strings.Trim(command[opened:i+end], inWord) != "" {
					return "",
						fmt.Errorf("the minion id %q can't be quoted twice: %%s stands among other words in quotes", id)
				}
				out.WriteString(string(quote) + quoted + string(quote))
			} else {
				out.WriteString(quoted)
			}
			word.WriteString("%s")
			i++
			continue
		case quote != 0 && b == quote:
			quote = 0
		case quote == '\'':
			word.WriteByte(b)
		case b == '\\' && i+1 < len(command):
			out.WriteByte(b)
			i++
			b = command[i]
			word.WriteByte(b)
			out.WriteByte(b)
			continue
		case quote == 0 && (b == '\'' || b == '"'):
			quote, opened = b, i+1
		case quote == 0 && strings.IndexByte(" \t\n;&|()<>", b) >= 0:
			if runsText(word.String()) {
				return "", fmt.Errorf("the minion id %q can't be quoted for the shell that %s runs",
					id, word.String())
			}
			word.Reset()
		default:
			word.WriteByte(b)
		}
		out.WriteByte(command[i])
	}
	return out.String(), nil
}

// inWord are the characters that may be next to a quoted %s.
const inWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@:/=+,%-"

// runsText reports whether a word makes a shell read others as a command line.
func runsText(word string) bool {
	switch word[strings.LastIndexByte(word, '/')+1:] {
	case "-c", "eval", "ssh", "su":
		return true
	}
	return false
}
