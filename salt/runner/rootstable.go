package runner

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// syncText is the table of a sync, followed by notes for the operator.
func syncText(views []RootsView, test bool) string {
	var b strings.Builder
	for _, v := range views {
		what := "nothing new"
		switch {
		case test:
			what = "only shown, nothing is changed"
		case v.Published:
			what = "published"
		}
		fmt.Fprintf(&b, "%s: head %d, %s; %d items, %s\n", v.Tree, v.Head, what, v.Items,
			byteText(v.Bytes))
		rows := [][]string{{"peer", "result", "added", "changed", "deleted", "bytes", "seconds"}}
		for i := range v.Peers {
			p := &v.Peers[i]
			row := []string{p.ID, p.result(), strconv.Itoa(p.Added), strconv.Itoa(p.Changed),
				strconv.Itoa(p.Deleted), strconv.FormatInt(p.Bytes, 10), fmt.Sprintf("%.2f",
					p.Seconds)}
			if p.Away || p.Error != "" || p.Source {
				row = append(row[:2], "-", "-", "-", "-", "-")
			}
			rows = append(rows, row)
		}
		grid(&b, rows, 2)
		for i := range v.Peers {
			v.Peers[i].notes(&b, test)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// statusText is the table of heads and drift.
func statusText(views []RootsView) string {
	var b strings.Builder
	for _, v := range views {
		if v.Head == 0 {
			fmt.Fprintf(&b,
				"%s: never synced; salt-run cluster.sync_roots on the master that has the right ones\n", v.Tree)
		} else {
			fmt.Fprintf(&b, "%s: head %d, published by %s at %s\n", v.Tree, v.Head, v.Source,
				v.At.UTC().Format(time.RFC3339))
		}
		rows := [][]string{{"peer", "head", "result", "drift"}}
		for i := range v.Peers {
			p := &v.Peers[i]
			row := []string{p.ID, strconv.FormatUint(p.Head, 10), p.result(),
				strconv.Itoa(p.Drifted)}
			if p.Away {
				row = []string{p.ID, "-", p.result(), "-"}
			}
			rows = append(rows, row)
		}
		grid(&b, rows, 3)
		for i := range v.Peers {
			v.Peers[i].notes(&b, false)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// shownItems bounds the lists below a table; --out=json shows more.
const shownItems = 20

// notes writes the lines about one master below the table.
func (p *RootsPeer) notes(b *strings.Builder, test bool) {
	if p.Error != "" && !p.Away {
		fmt.Fprintf(b, "  %s: %s\n", p.ID, p.Error)
	}
	list := func(head string, items []string, all int) {
		if all == 0 {
			return
		}
		fmt.Fprintf(b, "  %s: %s\n", p.ID, head)
		for _, it := range items[:min(len(items), shownItems)] {
			fmt.Fprintf(b, "    %s\n", it)
		}
		if more := all - min(len(items), shownItems); more > 0 {
			fmt.Fprintf(b, "    and %d more\n", more)
		}
	}
	if test {
		list("would be changed (+ added, ~ changed, - deleted)", printable(p.Changes),
			len(p.Changes))
	}
	var drift []string
	for _, d := range p.Drift {
		drift = append(drift, fmt.Sprintf("%-8s%s", d.What, d.Item))
	}
	list("changed there since its last sync, and left alone (force=True makes it like the source and keeps the old ones aside)", printable(drift), p.Drifted)
	if p.Kept > 0 {
		list(fmt.Sprintf("%d replaced items are kept aside in", p.Kept), printable(p.KeptIn),
			len(p.KeptIn))
	}
	list("roots that its configuration lacks are not synced there", printable(p.Missing),
		len(p.Missing))
	list("not synced, or not in full", printable(p.Skipped), len(p.Skipped))
}

// printable escapes control characters in file names.
func printable(list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		q := strconv.Quote(text)
		if out[i] = text; strings.Trim(q, `"`) != text {
			out[i] = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
		}
	}
	return out
}

// grid aligns columns: the first ones to the left, numbers to the right.
func grid(b *strings.Builder, rows [][]string, left int) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-len(cell))
			if i < left {
				row[i] = cell + pad
			} else {
				row[i] = pad + cell
			}
		}
		b.WriteString("  " + strings.TrimRight(strings.Join(row, "  "), " ") + "\n")
	}
}

// byteText formats a size for people.
func byteText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, names := float64(n), "KMGTPE"
	for i := range names {
		if f /= unit; f < unit || i == len(names)-1 {
			return fmt.Sprintf("%.1f %ciB", f, names[i])
		}
	}
	return ""
}
