package main

import (
	"encoding/xml"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/plotter"

	"clustermaster/tools/monitoring"
)

// Sizes of a picture of the dashboard, in pixels of a page of docs/.
const (
	boardWidth  = 1000
	boardMargin = 8
	boardColumn = (boardWidth - boardMargin) / 24.0
	boardUnit   = 24 // height of a unit of Grafana's grid
	boardGap    = 6  // between panels
	boardLine   = 12 // height of a line of a legend
)

// boardStyle has Grafana's light colours. The fonts have the same widths.
const boardStyle = `<style>text{font-family:"Liberation Sans",Arial,Helvetica,sans-serif;` +
	`font-size:9px;fill:#464c54}.t{font-size:11px;font-weight:bold;fill:#24292e}` +
	`.h{font-size:18px;font-weight:bold;fill:#24292e}.n{font-size:11px}` +
	`.p{fill:#fff;stroke:#d8dadf}.g{stroke:#e6e8eb;fill:none}.l{fill:none;stroke-width:1.4;` +
	`stroke-linejoin:round;stroke-linecap:round}.a{fill:#e02f44;fill-opacity:.1}</style>` + "\n"

// boardColors are Grafana's names of colours in the light theme.
var boardColors = map[string]string{"red": "#e02f44", "orange": "#d9730d", "green": "#37872d"}

// picture is an SVG in the making.
type picture struct{ strings.Builder }

func (p *picture) add(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// text writes at a place, with attributes of the SVG's.
func (p *picture) text(x, y float64, attributes, text string) {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(text)) // a Builder takes everything
	p.add(`<text x="%s" y="%s" %s>%s</text>`, pixels(x), pixels(y), attributes, escaped.String())
}

func pixels(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// fonts measure texts. Where a reader has no such font, texts are a little wider.
var fonts = font.NewCache(liberation.Collection())

func textWidth(text string, size float64) float64 {
	face := fonts.Lookup(font.Font{Typeface: "Liberation", Variant: "Sans"}, font.Length(size))
	return 1.05 * float64(face.Width(text))
}

// wrap puts items, as wide as they say, into lines of a width.
func wrap(widths []float64, width float64) (lines [][]int) {
	left := 0.0
	for i, w := range widths {
		if left -= w; left < 0 || len(lines) == 0 {
			lines, left = append(lines, nil), width-w
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], i)
	}
	return lines
}

// scale is how Grafana writes numbers of a unit from a size on.
type scale struct {
	from, one float64
	suffix    string
}

var scales = map[string][]scale{
	"short": {{0, 1, ""}, {1e4, 1e3, " K"}, {1e6, 1e6, " Mil"}},
	"s": {{0, 1e-6, " µs"}, {1e-3, 1e-3, " ms"}, {1, 1, " s"}, {120, 60, " min"},
		{7200, 3600, " h"}, {172800, 86400, " d"}},
	"bytes": {{0, 1, " B"}, {1 << 10, 1 << 10, " KiB"}, {1 << 20, 1 << 20, " MiB"},
		{1 << 30, 1 << 30, " GiB"}, {1 << 40, 1 << 40, " TiB"}},
	"percentunit": {{0, 0.01, " %"}},
	"ops":         {{0, 1, " ops/s"}},
	"reqps":       {{0, 1, " req/s"}},
}

func scaleFor(unit string, v float64) (found scale, err error) {
	if scales[unit] == nil {
		return found, fmt.Errorf("unit %q is unknown; add it to the scales", unit)
	}
	for _, s := range scales[unit] {
		if math.Abs(v) >= s.from {
			found = s
		}
	}
	return found, nil
}

func (s scale) text(v float64) string {
	v /= s.one
	if math.Abs(v) >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64) + s.suffix
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'g', 3, 64) + s.suffix
}

// ticks are round numbers of an axis, the first and last of which are its ends.
func (s scale) ticks(low, high float64) (list []float64) {
	low, high = low/s.one, high/s.one
	if low == high {
		low, high = min(low, 0), max(high, low+1)
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/2)))
	for _, more := range []float64{2, 2.5, 2} { // 2, 5 and 10 times the power of ten
		if (high-low)/step > 5 {
			step *= more
		}
	}
	for i := math.Floor(low/step + 1e-9); ; i++ {
		list = append(list, i*step*s.one)
		if i*step >= high-1e-9*step {
			return list
		}
	}
}

// writeBoard draws the shipped dashboard.
func writeBoard(dir string, r monitoring.Recording) error {
	b, err := monitoring.ParseBoard(monitoring.Dashboard)
	var svg []byte
	if err == nil {
		svg, err = drawBoard(b, r)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "monitoring-dashboard.svg"), svg, 0o644)
	}
	return err
}

// drawBoard draws a dashboard and the answers to its queries.
func drawBoard(b monitoring.Board, r monitoring.Recording) ([]byte, error) {
	p := new(picture)
	p.text(boardMargin, 24, `class="h"`, b.Title)
	p.text(boardWidth-boardMargin, 24, `class="n" text-anchor="end"`,
		time.Unix(r.From, 0).UTC().Format("2006-01-02 15:04:05")+" to "+clock(r.To)+" UTC")
	top := 30.0
	notes := append([]string{"Drawn from the panels of tools/monitoring/dashboard.json and from the answers " +
		"of a Prometheus to their queries; not by Grafana."}, r.Notes...)
	for _, note := range append(notes, firing(r)...) {
		words := strings.Fields(note)
		var widths []float64
		for _, w := range words {
			widths = append(widths, textWidth(w+" ", 11))
		}
		for _, line := range wrap(widths, boardWidth-2*boardMargin) {
			top += 14
			p.text(boardMargin, top, `class="n"`,
				strings.Join(words[line[0]:line[len(line)-1]+1], " "))
		}
	}
	top += 8
	bottom := top
	for _, panel := range b.Panels {
		g := panel.GridPos
		x, y := boardMargin+float64(g.X)*boardColumn, top+float64(g.Y)*boardUnit
		box := rectangle{x, y, x + float64(g.W)*boardColumn - boardGap,
			y + float64(g.H)*boardUnit - boardGap}
		bottom = max(bottom, box.bottom)
		var err error
		switch panel.Type {
		case "row":
			p.text(box.left, box.bottom, `class="t"`, panel.Title)
		case "stat", "timeseries":
			p.add(`<rect x="%s" y="%s" width="%s" height="%s" rx="2" class="p"/>`,
				pixels(box.left), pixels(box.top), pixels(box.right-box.left),
				pixels(box.bottom-box.top))
			p.text(box.left+8, box.top+15, `class="t"`, panel.Title)
			if panel.Type == "stat" {
				err = p.stat(box, panel, r.Panels[panel.ID])
			} else {
				err = p.curves(box, panel, r)
			}
		default:
			err = fmt.Errorf("panels of type %q can't be drawn", panel.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("draw panel %q: %w", panel.Title, err)
		}
	}
	height := pixels(bottom + boardMargin)
	return []byte(fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%s" `+
		`viewBox="0 0 %[1]d %[2]s">`+"\n"+boardStyle+`<rect width="%[1]d" height="%[2]s" `+
		`fill="#f4f5f5"/>`+"\n%[3]s</svg>\n", boardWidth, height, p.String())), nil
}

func clock(at int64) string { return time.Unix(at, 0).UTC().Format("15:04:05") }

// firing says when alerts fired.
func firing(r monitoring.Recording) (notes []string) {
	var all []string
	for _, a := range r.Alerts {
		for _, span := range spans(a, r.Step) {
			all = append(all, fmt.Sprintf("%s %s to %s", a.Legend("{{alertname}} {{instance}}"),
				clock(int64(span[0])), clock(int64(span[1]))))
		}
	}
	if all == nil {
		return nil
	}
	return []string{"Red stripes are firing alerts: " + strings.Join(all, ", ") + "."}
}

// spans are the times during which a series has values.
func spans(s monitoring.Series, step int64) (list [][2]float64) {
	for i := range s.Values {
		at, _ := s.Point(i)
		if len(list) == 0 || at-list[len(list)-1][1] > 1.5*float64(step) {
			list = append(list, [2]float64{at, at})
		}
		list[len(list)-1][1] = at
	}
	return list
}

type rectangle struct{ left, top, right, bottom float64 }

func (r rectangle) middle() (x, y float64) { return (r.left + r.right) / 2, (r.top + r.bottom) / 2 }

// stat writes the last value, or the names of the series.
func (p *picture) stat(box rectangle, panel monitoring.Panel, answers [][]monitoring.Series) error {
	value, colour := "", "green"
	var names []string
	for i, answer := range answers {
		for _, s := range answer {
			if len(s.Values) == 0 {
				continue
			}
			names = append(names, s.Legend(panel.Targets[i].LegendFormat))
			_, v := s.Point(len(s.Values) - 1)
			for _, step := range panel.FieldConfig.Defaults.Thresholds.Steps {
				if step.Value == nil || v >= *step.Value {
					colour = step.Color
				}
			}
			if panel.Options.TextMode == "name" {
				continue
			}
			unit, err := scaleFor(panel.FieldConfig.Defaults.Unit, v)
			if err != nil {
				return err
			}
			value = unit.text(v)
		}
	}
	if panel.Options.TextMode == "name" {
		value = strings.Join(names, ", ")
	}
	x, y := box.middle()
	if len(names) == 0 {
		p.text(x, y+10, `class="n" text-anchor="middle"`, "No data")
		return nil
	}
	size := min(34, 34*(box.right-box.left-20)/textWidth(value, 34))
	p.text(x, y+20, fmt.Sprintf(`text-anchor="middle" style="font-size:%spx;font-weight:bold;fill:%s"`,
		pixels(size), boardColors[colour]), value)
	return nil
}

// curve is a series, ready to be drawn.
type curve struct {
	name   string
	points plotter.XYs
}

// curvesOf are the series of a panel that have numbers.
func curvesOf(panel monitoring.Panel, answers [][]monitoring.Series) (list []curve) {
	for i, answer := range answers {
		for _, s := range answer {
			c := curve{name: s.Legend(panel.Targets[i].LegendFormat)}
			for k := range s.Values {
				if x, y := s.Point(k); !math.IsNaN(y) && !math.IsInf(y, 0) {
					c.points = append(c.points, plotter.XY{X: x, Y: y})
				}
			}
			if c.points != nil {
				list = append(list, c)
			}
		}
	}
	return list
}

// curves draws a panel of lines with their axes and legend.
func (p *picture) curves(box rectangle, panel monitoring.Panel, r monitoring.Recording) error {
	list := curvesOf(panel, r.Panels[panel.ID])
	if list == nil {
		x, y := box.middle()
		p.text(x, y+10, `class="n" text-anchor="middle"`, "No data")
		return nil
	}
	defaults := panel.FieldConfig.Defaults
	low, high := math.Inf(1), math.Inf(-1)
	var widths []float64
	for _, c := range list {
		widths = append(widths, textWidth(c.name, 9)+22)
		for _, at := range c.points {
			low, high = min(low, at.Y), max(high, at.Y)
		}
	}
	if defaults.Min != nil {
		low = *defaults.Min
		high = max(high, low)
	}
	unit, err := scaleFor(defaults.Unit, max(math.Abs(low), math.Abs(high)))
	if err != nil {
		return err
	}
	ticks := unit.ticks(low, high)
	low, high = ticks[0], ticks[len(ticks)-1]
	legend := wrap(widths, box.right-box.left-10)
	area := rectangle{box.left, box.top + 26, box.right - 16,
		box.bottom - float64(len(legend)*boardLine) - 20}
	for _, v := range ticks {
		area.left = max(area.left, box.left+12+textWidth(unit.text(v), 9))
	}
	x := func(at float64) float64 {
		return area.left + (at-float64(r.From))/float64(r.To-r.From)*(area.right-area.left)
	}
	y := func(v float64) float64 {
		return area.bottom - (max(v, low)-low)/(high-low)*(area.bottom-area.top)
	}
	for _, v := range ticks {
		p.add(`<path d="M%s %sH%s" class="g"/>`, pixels(area.left), pixels(y(v)), pixels(area.right))
		p.text(area.left-5, y(v)+3, `text-anchor="end"`, unit.text(v))
	}
	every := max(60, (r.To-r.From)/5/60*60) // whole minutes
	for at := (r.From + every - 1) / every * every; at <= r.To; at += every {
		p.text(x(float64(at)), area.bottom+12, `text-anchor="middle"`, clock(at)[:5])
	}
	for _, a := range r.Alerts {
		for _, span := range spans(a, r.Step) {
			p.add(`<rect x="%s" y="%s" width="%s" height="%s" class="a"/>`, pixels(x(span[0])),
				pixels(area.top), pixels(max(1, x(span[1])-x(span[0]))), pixels(area.bottom-area.top))
		}
	}
	for i, c := range list {
		p.add(`<path d="%s" class="l" %s/>`, c.path(float64(r.Step), x, y), colourOf(i))
	}
	for row, items := range legend {
		left, base := box.left+8, box.bottom-6-float64((len(legend)-1-row)*boardLine)
		for _, i := range items {
			p.add(`<path d="M%s %sh10" class="l" %s/>`, pixels(left), pixels(base-3), colourOf(i))
			p.text(left+13, base, ``, list[i].name)
			left += widths[i]
		}
	}
	return nil
}

// colourOf returns the attributes of a line. Yellow is left out: it is hard to see on white.
func colourOf(i int) string {
	colours := slices.Concat(palette[:6], palette[7:])
	c, _ := colours[i%len(colours)].(color.RGBA)
	text := fmt.Sprintf(`stroke="#%02x%02x%02x"`, c.R, c.G, c.B)
	if turn := i / len(colours); turn > 0 {
		text += fmt.Sprintf(` stroke-dasharray="%d 3"`, 5-2*min(turn, 2))
	}
	return text
}

// path draws lines between points that are a step apart, and a dot where there are no others.
// Points inside level lines are left out.
func (c curve) path(step float64, x, y func(float64) float64) string {
	var b strings.Builder
	joined := func(i int) bool {
		return i > 0 && i < len(c.points) && c.points[i].X-c.points[i-1].X < 1.5*step
	}
	level := func(i int) bool {
		return joined(i) && pixels(y(c.points[i].Y)) == pixels(y(c.points[i-1].Y))
	}
	for i, at := range c.points {
		switch {
		case level(i) && level(i+1):
		case joined(i):
			fmt.Fprintf(&b, "L%s %s", pixels(x(at.X)), pixels(y(at.Y)))
		default:
			fmt.Fprintf(&b, "M%s %sh.1", pixels(x(at.X)), pixels(y(at.Y)))
		}
	}
	return b.String()
}
