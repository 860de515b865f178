package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Colours that people with any colour vision tell apart (Okabe and Ito).
var palette = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442",
	"#000000"}

// Measures of all charts, in pixels.
const (
	chartWidth  = 760
	chartLeft   = 170
	chartRight  = 90
	chartTop    = 58
	chartBottom = 40
	barHeight   = 13
)

// Bars is a chart of horizontal bars on a logarithmic scale, in groups with one bar of each series.
type Bars struct {
	Title, Unit string
	Series      []string
	Groups      []Group
}

// Group is a name and a bar of each series.
type Group struct {
	Name   string
	Values []float64 // by series; 0: nothing was measured
}

// SVG draws the chart; equal charts give equal bytes.
func (c Bars) SVG() []byte {
	low, high := math.Inf(1), 0.0
	for _, g := range c.Groups {
		for _, v := range g.Values {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		low, high = 1, 10
	}
	from, to := math.Floor(math.Log10(low))-0.3, math.Ceil(math.Log10(high))
	groupHeight := len(c.Series)*barHeight + 12
	height := chartTop + len(c.Groups)*groupHeight + chartBottom
	x := func(v float64) float64 {
		return chartLeft + (math.Log10(v)-from)/(to-from)*(chartWidth-chartLeft-chartRight)
	}
	d := newDrawing(c.Title, height)
	d.legend(c.Series)
	for e := math.Ceil(from); e <= to; e++ {
		at := x(math.Pow(10, e))
		d.line(at, chartTop, at, float64(height-chartBottom), "#dddddd")
		d.text(at, float64(height-chartBottom+16), "middle", Short(math.Pow(10, e)))
	}
	for i, g := range c.Groups {
		top := chartTop + i*groupHeight + 6
		d.text(chartLeft-8, float64(top+groupHeight/2-4), "end", g.Name)
		for j, v := range g.Values {
			if v <= 0 {
				continue
			}
			y := float64(top + j*barHeight)
			fmt.Fprintf(d, `<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="%s"/>`+"\n",
				chartLeft, y, x(v)-chartLeft, barHeight-2, palette[j%len(palette)])
			d.text(x(v)+4, y+9, "start", Number(v))
		}
	}
	d.text((chartWidth+chartLeft-chartRight)/2, float64(height-6), "middle",
		c.Unit+", logarithmic scale")
	return d.end()
}

// Plot is a chart of lines.
type Plot struct {
	Title, X, Y string
	LogX, LogY  bool
	Ticks       []Tick // of x; nil: round numbers
	Lines       []Line
}

// Tick is a mark on the x axis.
type Tick struct {
	At    float64
	Label string
}

// Line is a name and points of x and y.
type Line struct {
	Name   string
	Points [][2]float64
}

const plotHeight = 360

// SVG draws the plot; equal plots give equal bytes.
func (p Plot) SVG() []byte {
	xs, ys := axis{log: p.LogX}, axis{log: p.LogY}
	for _, l := range p.Lines {
		for _, at := range l.Points {
			xs.take(at[0])
			ys.take(at[1])
		}
	}
	if !p.LogY {
		ys.take(0)
	}
	xs.close(chartLeft-90, chartWidth-30)
	ys.close(plotHeight-chartBottom-14, chartTop)
	d := newDrawing(p.Title, plotHeight)
	var names []string
	for _, l := range p.Lines {
		names = append(names, l.Name)
	}
	d.legend(names)
	for _, t := range ys.ticks() {
		at := ys.place(t)
		d.line(chartLeft-90, at, chartWidth-30, at, "#dddddd")
		d.text(chartLeft-96, at+4, "end", Short(t))
	}
	ticks := p.Ticks
	if ticks == nil {
		for _, t := range xs.ticks() {
			ticks = append(ticks, Tick{t, Short(t)})
		}
	}
	for _, t := range ticks {
		d.line(xs.place(t.At), chartTop, xs.place(t.At), plotHeight-chartBottom-14, "#dddddd")
		d.text(xs.place(t.At), plotHeight-chartBottom+2, "middle", t.Label)
	}
	for i, l := range p.Lines {
		var path strings.Builder
		for j, at := range l.Points {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: " L"}[j == 0],
				xs.place(at[0]), ys.place(at[1]))
		}
		colour := palette[i%len(palette)]
		fmt.Fprintf(d, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n",
			path.String(), colour)
		for _, at := range l.Points {
			fmt.Fprintf(d, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", xs.place(at[0]),
				ys.place(at[1]), colour)
		}
	}
	d.text(chartWidth/2, plotHeight-8, "middle", p.X)
	d.text(8, chartTop-6, "start", p.Y)
	return d.end()
}

// axis maps values to pixels.
type axis struct {
	log      bool
	low      float64
	high     float64
	any      bool
	from, to float64 // pixels
}

func (a *axis) scale(v float64) float64 {
	if a.log {
		return math.Log10(max(v, 1e-9))
	}
	return v
}

func (a *axis) take(v float64) {
	v = a.scale(v)
	if !a.any {
		a.low, a.high, a.any = v, v, true
	}
	a.low, a.high = min(a.low, v), max(a.high, v)
}

func (a *axis) close(from, to float64) {
	a.from, a.to = from, to
	if a.high-a.low < 1e-9 {
		a.high, a.low = a.high+0.5, a.low-0.5
	}
}

func (a *axis) place(v float64) float64 {
	return a.from + (a.scale(v)-a.low)/(a.high-a.low)*(a.to-a.from)
}

func (a *axis) ticks() []float64 {
	var out []float64
	if a.log {
		for e := math.Ceil(a.low); e <= a.high; e++ {
			out = append(out, math.Pow(10, e))
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10(a.high-a.low)))
	for n := math.Ceil(a.low / step); n*step <= a.high; n++ {
		out = append(out, n*step)
	}
	return out
}

// drawing is an SVG document under way.
type drawing struct{ bytes.Buffer }

func newDrawing(title string, height int) *drawing {
	d := new(drawing)
	fmt.Fprintf(d,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", chartWidth, height, chartWidth, height)
	fmt.Fprintf(d, `<rect width="%d" height="%d" fill="white"/>`+"\n", chartWidth, height)
	fmt.Fprintf(d, `<text x="8" y="18" font-size="14" font-weight="bold">%s</text>`+"\n",
		escaped(title))
	return d
}

func (d *drawing) legend(names []string) {
	at := 8.0
	for i, n := range names {
		fmt.Fprintf(d, `<rect x="%.1f" y="28" width="10" height="10" fill="%s"/>`+"\n", at,
			palette[i%len(palette)])
		d.text(at+14, 37, "start", n)
		at += 26 + 6.2*float64(len([]rune(n)))
	}
}

func (d *drawing) text(x, y float64, anchor, s string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor,
		escaped(s))
}

func (d *drawing) line(x1, y1, x2, y2 float64, colour string) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2,
		y2, colour)
}

func (d *drawing) end() []byte {
	d.WriteString("</svg>\n")
	return d.Bytes()
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// Short writes a round number, as axes have them: thousands as k, millions as M.
func Short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%g", math.Round(v*1e6)/1e6)
}

// Number prints with three digits, and thousands parted by commas.
func Number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0:
		return "-" + Number(-v)
	case v >= 99.95:
		s := fmt.Sprintf("%.0f", v)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
