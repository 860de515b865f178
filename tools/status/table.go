package status

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// memberTable writes one line per master.
func memberTable(w io.Writer, v view) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "MASTER\tSTATE\tROLE\tREADY\tADDRESS\tRELEASE\tLAG\tHEARD\tCLOCK\tSHARE")
	for _, id := range v.Members.names() {
		p := v.Members.Peers[id]
		ready, heard, clock, share := "no", "-", "-", "-"
		if p.Ready {
			ready = "yes"
		}
		if p.LastContact != nil {
			heard = fmt.Sprintf("%.1fs ago", *p.LastContact)
		}
		if p.Clock != nil {
			clock = fmt.Sprintf("%+.1fs", *p.Clock)
		}
		if s, ok := v.Ring.Shares[id]; ok {
			share = fmt.Sprintf("%.0f%%", 100*s)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", id, p.State, v.Members.role(id),
			ready, p.Address, p.Version, p.Lag, heard, clock, share)
	}
	t.Flush()
}

// statusPage writes everything: a head line, the masters, movements, problems.
func statusPage(w io.Writer, v view) {
	state := "healthy"
	if !v.Health.Healthy {
		state = fmt.Sprintf("%d problem", len(v.Health.Problems))
		if len(v.Health.Problems) != 1 {
			state += "s"
		}
	}
	if len(v.Members.Peers) == 0 {
		fmt.Fprintf(w, "%s: %s; it is no member of a cluster\n", v.Members.Node, state)
	} else {
		leader := v.Members.Leader
		if leader == "" {
			leader = "none"
		}
		fmt.Fprintf(w,
			"%s: %d of %d masters ready, %d of %d voters in contact (%d needed), leader %s, term %d\n\n",
			state, v.Health.Ready, v.Health.Members, v.Health.Voters.InContact,
			v.Health.Voters.Count, v.Health.Voters.Needed, leader, v.Members.Term)
		memberTable(w, v)
	}
	if bars := movements(v); len(bars) > 0 {
		fmt.Fprintln(w)
		for _, b := range bars {
			fmt.Fprintln(w, b)
		}
	}
	if len(v.Health.Problems) > 0 {
		fmt.Fprintln(w)
	}
	for _, p := range v.Health.Problems {
		fmt.Fprintln(w, "problem:", p)
	}
	for _, n := range v.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	if len(v.Members.Removed) > 0 {
		fmt.Fprintln(w, "removed:", strings.Join(v.Members.Removed, ", "))
	}
}

// movements lists a line with a bar for each running copy between masters.
func movements(v view) (lines []string) {
	for _, id := range v.Members.names() {
		p := v.Members.Peers[id]
		if s := p.Sync; s != nil {
			lines = append(lines, fmt.Sprintf("%-12s roots    %s %s of %s%s", id,
				bar(s.Percent/100), size(s.Bytes), size(s.Total), left(s.ETA)))
		}
		if p.Trouble != "" {
			lines = append(lines, fmt.Sprintf("%-12s roots    %s", id, p.Trouble))
		}
	}
	for _, t := range v.Ring.Transfers {
		if t.Total == nil || *t.Total <= 0 {
			lines = append(lines, fmt.Sprintf("%-12s records  %d partitions to fetch, %s so far",
				t.To, t.Partitions, size(t.Bytes)))
			continue
		}
		eta := int64(-1)
		if t.ETA != nil {
			eta = *t.ETA
		}
		lines = append(lines, fmt.Sprintf("%-12s records  %s %s of %s, %d partitions to fetch%s",
			t.To, bar(float64(t.Bytes)/float64(*t.Total)), size(t.Bytes), size(*t.Total),
			t.Partitions, left(eta)))
	}
	return lines
}

const barWidth = 24

// bar draws a share between 0 and 1.
func bar(share float64) string {
	full := int(min(1, max(0, share)) * barWidth)
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full),
		strings.Repeat(".", barWidth-full), 100*min(1, max(0, share)))
}

// left formats the remaining time; "" if it is unknown.
func left(seconds int64) string {
	if seconds < 0 {
		return ""
	}
	return ", " + (time.Duration(seconds) * time.Second).String() + " left"
}

// size writes bytes with a binary unit.
func size(n int64) string {
	f, unit := float64(n), 0
	for f >= 1024 && unit < 4 {
		f, unit = f/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, []string{"KiB", "MiB", "GiB", "TiB"}[unit-1])
}
