package bench

import (
	"slices"
	"strconv"
	"strings"

	"clustermaster/tools/chart"
)

// growth is the page of --grow.
func (r *Report) growth(command string) *page {
	p := new(page)
	p.say("# How cost grows\n")
	p.origin(r, command)
	p.say("- All masters, minions and subscribers share this machine, its processors and its one disk.")
	for _, part := range growParts {
		columns := slices.DeleteFunc(slices.Clone(r.Columns),
			func(c Column) bool { return c.Part != part })
		if len(columns) == 0 {
			continue
		}
		switch part {
		case partMinions:
			p.minions(columns)
		case partMasters:
			p.masters(columns)
		case partSizes:
			p.sizes(columns)
		case partStalled:
			p.subscribers(columns)
		case partJoin:
			p.joined(columns)
		}
	}
	return p
}

func (p *page) minions(columns []Column) {
	p.say("\n## Minions\n")
	p.say("Simulated minions come to one master, step by step: each signs in for the first time, fetches its pillar, subscribes and fires its start")
	p.say("events, at most %d at a time; their own RSA operations are part of that. Then `test.ping` of all, by glob and by a grain, from the", fleetStarting)
	p.say("order to the last return, and the compound target `G@%s and %s*` without a job.\n",
		fleetGrain, fleetPrefix)
	rows := [][]string{{"minions", "to sign in and start", "memory (PSS)", "of that each",
		"`test.ping`", "`test.ping -G`", "target resolved"}}
	memory, start := chart.Line{Name: "PSS"}, chart.Line{Name: "sign-in and start"}
	glob, grain := chart.Line{Name: "test.ping"}, chart.Line{Name: "test.ping -G"}
	none, _ := columns[0].figure(figureFleet(0))
	for _, c := range columns {
		n := c.Minions
		m, _ := c.figure(figureFleet(n))
		each := "-"
		if n > 0 {
			each = chart.Number((m.Value-none.Value)*1024/float64(n)) + " KB"
		}
		rows = append(rows, []string{thousands(n), c.cellOf(figureSignIn(n)),
			c.cellOf(figureFleet(n)), each, c.cellOf(figurePing(n)), c.cellOf(figureGrainPing(n)),
			c.cellOf(figureResolve(n))})
		for _, l := range []struct {
			line  *chart.Line
			name  string
			scale float64
		}{{&memory, figureFleet(n), 1}, {&start, figureSignIn(n), 1000}, {&glob, figurePing(n),
			1}, {&grain, figureGrainPing(n), 1}} {
			if f, ok := c.figure(l.name); ok && n > 0 && f.Value > 0 {
				l.line.Points = append(l.line.Points, [2]float64{float64(n), f.Value * l.scale})
			}
		}
	}
	p.table(rows)
	p.remarks(columns)
	p.plot("growth-minions-memory.svg", chart.Plot{Title: "Memory of a master by minions",
		X: "minions", Y: "MB", LogX: true, LogY: true, Lines: []chart.Line{memory}}.SVG())
	p.plot("growth-minions-time.svg", chart.Plot{Title: "Time by minions", X: "minions", Y: "ms",
		LogX: true, LogY: true, Lines: []chart.Line{glob, grain, start}}.SVG())
}

// remarks are the notes that are no mere count of repetitions.
func (p *page) remarks(columns []Column) {
	if notes := (&Report{Columns: columns}).notes(); len(notes) > 0 {
		p.say("")
		for _, n := range notes {
			p.say("%s", n)
		}
	}
}

func (p *page) masters(columns []Column) {
	p.say("\n## Masters\n")
	p.say("%d minions on %d connections, spread over all masters; requests per second with the 99th percentile of the latency in ms.", columns[0].Minions, columns[0].Workers)
	p.say("More masters on one machine share its processors: what is seen is the price of more copies and of agreement, not what more machines give.\n")
	p.summary(&Report{Columns: columns})
	rate := chart.Plot{Title: "Requests per second by masters on one machine", X: "masters",
		Y: "requests per second", LogY: true, Ticks: []chart.Tick{}}
	for _, c := range columns {
		n := len(c.Masters)
		rate.Ticks = append(rate.Ticks, chart.Tick{At: float64(n), Label: strconv.Itoa(n)})
		for _, l := range c.Loads {
			i := slices.IndexFunc(rate.Lines,
				func(x chart.Line) bool { return x.Name == l.Request })
			if i < 0 {
				i = len(rate.Lines)
				rate.Lines = append(rate.Lines, chart.Line{Name: l.Request})
			}
			if l.PerSecond > 0 {
				rate.Lines[i].Points = append(rate.Lines[i].Points,
					[2]float64{float64(n), l.PerSecond})
			}
		}
	}
	p.plot("growth-masters.svg", rate.SVG())
}

func (p *page) sizes(columns []Column) {
	p.say("\n## Size of jobs\n")
	p.say("`_return`s of a text, each of a new job, synced on a write quorum before the answer; then jobs to %s, from the order to the last right", plural(columns[0].Minions, "simulated minion"))
	p.say("return: one with such an argument and a small return, and one with a small argument and such returns. KB and MB are 1,000 and 1,000,000 bytes here.\n")
	rows := [][]string{{"size", "returns per second", "p99 of a return", "returns taken",
		"such an argument", "such returns"}}
	rate := chart.Plot{Title: "Returns by size", X: "bytes of a return", Y: "MB/s", LogX: true,
		LogY: true}
	job := chart.Plot{Title: "Jobs by size, publish to last return",
		X: "bytes of the argument, or of each return", Y: "ms", LogX: true, LogY: true}
	for _, c := range columns {
		masters := plural(len(c.Masters), "master")
		cells := []string{c.Name, "-", "-", c.cellOf(figureReturned), c.cellOf(figureArgument),
			c.cellOf(figureAnswer)}
		if len(c.Loads) > 0 && c.Loads[0].Answered > 0 {
			cells[1], cells[2] = chart.Number(c.Loads[0].PerSecond), chart.Number(c.Loads[0].P99)+
				" ms"
		}
		rows = append(rows, cells)
		for _, l := range []struct {
			plot       *chart.Plot
			name, line string
		}{{&rate, figureReturned, masters}, {&job, figureArgument, masters + ", argument"}, {&job,
			figureAnswer, masters + ", returns"}} {
			i := slices.IndexFunc(l.plot.Lines, func(x chart.Line) bool { return x.Name == l.line })
			if i < 0 {
				i = len(l.plot.Lines)
				l.plot.Lines = append(l.plot.Lines, chart.Line{Name: l.line})
			}
			if f, ok := c.figure(l.name); ok && f.Value > 0 {
				l.plot.Lines[i].Points = append(l.plot.Lines[i].Points,
					[2]float64{float64(c.Bytes), f.Value})
			}
		}
	}
	p.table(rows)
	p.remarks(columns)
	p.plot("growth-sizes-rate.svg", rate.SVG())
	p.plot("growth-sizes-time.svg", job.SVG())
}

func (p *page) subscribers(columns []Column) {
	p.say("\n## Subscribers that do not read\n")
	p.say("Bare subscriptions at one master, and jobs of some KB, a few in a second. Some subscribers stop reading with their connection open; or their kernel drops whatever comes")
	p.say("for them, without an acknowledgement or a FIN, as when a machine loses its power; or they read slowly. Delivery to the others is counted from the order of a")
	p.say("job to its arrival at each of them. The generator reads for all of them on the same processors. Before the master's own queue of a connection begins, the kernel's")
	p.say("buffers are full: some ten KB for one that takes nothing, some hundred KB for one that reads slowly.\n")
	head := []string{"figure"}
	for _, c := range columns {
		head = append(head, c.Name)
	}
	rows := [][]string{head}
	for _, name := range figureNames(&Report{Columns: columns}) {
		row := []string{name}
		for _, c := range columns {
			row = append(row, c.cellOf(name))
		}
		rows = append(rows, row)
	}
	p.table(rows)
	last := columns[len(columns)-1]
	if f, ok := last.figure(figureDropped); ok {
		queued, _ := last.figure(figureQueued)
		p.say("\nThose that were not queued are %s publications; %s.", f.Note, queued.Note)
	}
	bars := chart.Bars{Title: "Delivery of a publication to those that read",
		Unit: "ms (shorter is better)"}
	for _, name := range []string{figureDelay, figureDelay99, figureDelayX} {
		g := chart.Group{Name: name[len("delivery to the others, "):]}
		for _, c := range columns {
			f, _ := c.figure(name)
			g.Values = append(g.Values, f.Value)
		}
		bars.Groups = append(bars.Groups, g)
	}
	for _, c := range columns {
		_, name, _ := strings.Cut(c.Name, ", ") // after the number of subscribers, which all have
		bars.Series = append(bars.Series, strings.Replace(name, " of them", "", 1))
	}
	p.plot("growth-subscribers.svg", bars.SVG())
}

func (p *page) joined(columns []Column) {
	p.say("\n## One master more, one master less\n")
	p.say("Three masters with keys, returns and a `file_roots` each take a fourth one, then one of the four is killed and removed; `cluster_isolated_filesystem: True`, all other")
	p.say("options as they come. A master sends roots at `cluster_transfer_rate`, 64 MiB/s, at most, to all who fetch from it together.\n")
	for _, c := range columns {
		rows := [][]string{{"figure", ""}}
		for _, f := range c.Figures {
			rows = append(rows, []string{f.Name, f.String()})
		}
		p.table(rows)
	}
}
