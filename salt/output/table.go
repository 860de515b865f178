package output

import (
	"strings"
	"unicode/utf8"

	"clustermaster/value"
)

// tableText prints lists of maps and lists of texts as grids below the keys that lead to them. It
// does not print other values.
func tableText(o Options, r Result) (string, error) {
	t := &table{c: o.colors()}
	if err := t.value(isoTimes(r.Value), 0); err != nil {
		return "", err
	}
	return strings.Join(t.lines, "\n"), nil
}

// isoTimes makes texts of all times, for tables only, as in Salt.
func isoTimes(v any) any {
	if whole, ok := eachPart(v, isoTimes); ok {
		return whole
	}
	if at, ok := v.(value.Time); ok {
		return strings.Replace(value.Str(at), " ", "T", 1)
	}
	return v
}

type table struct {
	c     colors
	lines []string
}

const tableColumn = 50 // the width at which a column wraps

func (t *table) line(indent int, color, text, suffix string) {
	t.lines = append(t.lines, strings.Repeat(" ", indent)+color+text+t.c.end+suffix)
}

func (t *table) value(v any, indent int) error {
	switch x := v.(type) {
	case value.Map:
		sorted, ok := value.Sorted(x)
		if !ok {
			return errShape
		}
		for _, p := range sorted {
			t.line(indent, t.c.darkGray, value.Str(p.Key), ":")
			t.line(indent, t.c.darkGray, "----------", "")
			if rows, ok := p.Value.([]any); ok {
				if err := t.rows(rows, indent); err != nil {
					return err
				}
			} else if err := t.value(p.Value, indent+4); err != nil {
				return err
			}
		}
	case []any:
		return t.rows(x, indent)
	}
	return nil
}

// rows prints a list whose elements are all maps, all texts or all lists.
func (t *table) rows(list []any, indent int) error {
	if len(list) == 0 {
		return nil
	}
	kind := kindOf(list[0])
	for _, e := range list[1:] {
		if kindOf(e) != kind {
			return nil
		}
	}
	var rows [][]string
	for i, e := range list {
		switch x := e.(type) {
		case value.Map:
			sorted, ok := value.Sorted(x)
			if !ok {
				return errShape
			}
			var labels, cells []string
			for _, p := range sorted {
				labels = append(labels, title(strings.ReplaceAll(value.Str(p.Key), "_", " ")))
				cells = append(cells, value.Str(p.Value))
			}
			if i == 0 {
				rows = append(rows, labels)
			}
			rows = append(rows, cells)
		case string:
			rows = append(rows, []string{x})
		case []any:
			cells := make([]string, len(x))
			for j, c := range x {
				s, ok := c.(string)
				if !ok {
					return errShape
				}
				cells[j] = s
			}
			rows = append(rows, cells)
		default:
			return errShape
		}
	}
	t.grid(rows, indent+4)
	return nil
}

func kindOf(v any) string {
	switch v.(type) {
	case value.Map:
		return "map"
	case string:
		return "text"
	case []any:
		return "list"
	case nil:
		return "none"
	case bool:
		return "bool"
	case float64:
		return "float"
	case []byte:
		return "bytes"
	}
	return "int"
}

// grid draws a rule below every row, so a header looks like any row. It prints wrapped cells and
// rows of unequal length in full; Salt cuts them to the shortest one.
func (t *table) grid(rows [][]string, indent int) {
	var logical [][][]string // row, physical line, cell
	widths := []int{}
	for _, row := range rows {
		height := 0
		cells := make([][]string, len(row))
		for i, cell := range row {
			cells[i] = wrapCell(cell)
			height = max(height, len(cells[i]))
		}
		physical := make([][]string, height)
		for y := range physical {
			physical[y] = make([]string, len(row))
			for x := range row {
				if y < len(cells[x]) {
					physical[y][x] = cells[x][y]
				}
				for len(widths) <= x {
					widths = append(widths, 0)
				}
				widths[x] = max(widths[x], utf8.RuneCountInString(physical[y][x]))
			}
		}
		logical = append(logical, physical)
	}
	total := 4 + 3*(len(widths)-1)
	for _, w := range widths {
		total += w
	}
	rule := strings.Repeat("-", max(total, 0))
	t.line(indent, t.c.lightGray, rule, "")
	for _, physical := range logical {
		for _, cells := range physical {
			shown := make([]string, len(widths)) // a row may have fewer cells than others
			copy(shown, cells)
			for x := range shown {
				shown[x] = center(shown[x], widths[x])
			}
			t.line(indent, t.c.white, "| "+strings.Join(shown, " | ")+" |", "")
		}
		t.line(indent, t.c.lightGray, rule, "")
	}
}

// wrapCell breaks a text at blanks where a line would exceed the column's width.
func wrapCell(text string) []string {
	var b strings.Builder
	width := 0
	for i, word := range strings.Split(text, " ") {
		first, _, _ := strings.Cut(word, "\n")
		if i > 0 {
			if width+utf8.RuneCountInString(first) >= tableColumn {
				b.WriteByte('\n')
				width = 0
			} else {
				b.WriteByte(' ')
				width++
			}
		}
		b.WriteString(word)
		if at := strings.LastIndexByte(word, '\n'); at >= 0 {
			width = utf8.RuneCountInString(word[at+1:])
		} else {
			width += utf8.RuneCountInString(word)
		}
	}
	return strings.Split(b.String(), "\n")
}

// center is Python's str.center: an odd blank goes to the left if the width is odd.
func center(s string, width int) string {
	gap := width - utf8.RuneCountInString(s)
	if gap <= 0 {
		return s
	}
	left := gap/2 + (gap & width & 1)
	return strings.Repeat(" ", left) + s + strings.Repeat(" ", gap-left)
}

// title is Python's str.title: a letter after a non-letter is in upper case,
// any other in lower case.
func title(s string) string {
	r := []rune(strings.ToLower(s))
	for i := range r {
		if i == 0 || !letter(r[i-1]) || r[i-1] == '_' {
			r[i] = []rune(strings.ToUpper(string(r[i])))[0]
		}
	}
	return string(r)
}
