package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"clustermaster/tools/figure"
)

// Colours that people with any colour vision tell apart (Okabe and Ito).
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	color.RGBA{0xf0, 0xe4, 0x42, 0xff}, color.RGBA{0x00, 0x00, 0x00, 0xff},
}

// chart is a plot of lines, or, with rows, of one dot for each row and line.
type chart struct {
	title, x, y string
	logX, logY  bool
	ticks       []plot.Tick // of x; nil: round numbers
	rows        []string    // y is the number of a row, from the top
	lines       []*line
}

// line is a name and its points. On a logarithmic axis only points above 0 are drawn.
type line struct {
	name   string
	points plotter.XYs
}

// line finds the line of that name, or adds it.
func (c *chart) line(name string) *line {
	for _, l := range c.lines {
		if l.name == name {
			return l
		}
	}
	l := &line{name: name}
	c.lines = append(c.lines, l)
	return l
}

func (l *line) add(x, y float64) { l.points = append(l.points, plotter.XY{X: x, Y: y}) }

const (
	plotWidth   = 8 * vg.Inch
	rowHeight   = 30 // points
	legendEntry = 16
)

// svg draws the chart; equal charts give equal bytes.
func (c *chart) svg() ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Legend.Top, p.Legend.ThumbnailWidth, p.Legend.Padding = true, 14, 3
	for _, s := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font,
		&p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font,
		&p.Legend.TextStyle.Font} {
		s.Variant, s.Size = "Sans", 10
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color = color.Gray{0xdd}
	grid.Vertical.Color = color.Gray{0xdd}
	p.Add(grid)
	drawn := 0
	names := 0
	for i, l := range c.lines {
		points := l.points[:0:0]
		for _, at := range l.points {
			if (!c.logX || at.X > 0) && (!c.logY || at.Y > 0) {
				points = append(points, at)
			}
		}
		if len(points) == 0 {
			continue
		}
		drawn += len(points)
		names = max(names, len([]rune(l.name)))
		if err := c.draw(p, l.name, points, i); err != nil {
			return nil, err
		}
	}
	if drawn == 0 {
		return nil, fmt.Errorf("the plot %q has no points", c.title)
	}
	if c.logX {
		logarithmic(&p.X)
	}
	if c.logY {
		logarithmic(&p.Y)
	} else {
		p.Y.Min = min(p.Y.Min, 0)
	}
	if c.ticks != nil {
		p.X.Tick.Marker = plot.ConstantTicks(c.ticks)
	}
	height := max(4*vg.Inch, vg.Length(len(c.lines)*legendEntry+60))
	if c.rows != nil {
		c.nameRows(p)
		height = vg.Length(len(c.rows)*rowHeight + 90)
	}
	canvas := vgsvg.New(plotWidth, height)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	beside := vg.Length(names)*5.2 + 30
	legend := p.Legend
	p.Legend = plot.NewLegend()
	p.Draw(draw.Crop(all, 4, -beside, 4, -6))
	legend.Draw(draw.Crop(all, plotWidth-beside, -4, 0, -24))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}

// draw adds one line in the colour of its number; with rows it draws dots with their values beside
// them.
func (c *chart) draw(p *plot.Plot, name string, points plotter.XYs, number int) error {
	colour := palette[number%len(palette)]
	if c.rows == nil {
		path, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("draw %s: %w", name, err)
		}
		path.Color, path.Width, dots.Color, dots.Shape = colour, 1.5, colour, draw.CircleGlyph{}
		p.Add(path, dots)
		p.Legend.Add(name, path, dots)
		return nil
	}
	placed := make(plotter.XYs, len(points))
	labels := make([]string, len(points))
	for i, at := range points {
		placed[i] = plotter.XY{X: at.X, Y: float64(len(c.rows)-1) - at.Y - 0.3*float64(number) + 0.15}
		labels[i] = "  " + figure.Number(at.X)
	}
	dots, err := plotter.NewScatter(placed)
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	dots.Color, dots.Shape, dots.Radius = colour, draw.CircleGlyph{}, 4
	values, err := plotter.NewLabels(plotter.XYLabels{XYs: placed, Labels: labels})
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	for i := range values.TextStyle {
		values.TextStyle[i].Font.Variant, values.TextStyle[i].Font.Size = "Sans", 8
		values.TextStyle[i].YAlign = -0.5
	}
	p.Add(dots, values)
	p.Legend.Add(name, dots)
	return nil
}

// nameRows puts the rows' names where y has numbers.
func (c *chart) nameRows(p *plot.Plot) {
	var ticks []plot.Tick
	for i, name := range c.rows {
		ticks = append(ticks, plot.Tick{Value: float64(len(c.rows) - 1 - i), Label: name})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Min, p.Y.Max = -0.6, float64(len(c.rows))-0.4
}

// logarithmic scales an axis from one power of ten to another.
func logarithmic(a *plot.Axis) {
	a.Min = math.Pow(10, math.Floor(math.Log10(a.Min)))
	a.Max = math.Pow(10, math.Ceil(math.Log10(a.Max)))
	if a.Min == a.Max {
		a.Max *= 10
	}
	a.Scale, a.Tick.Marker = plot.LogScale{}, decades{}
}

// decades marks the powers of ten.
type decades struct{}

func (decades) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for v := low; v <= high*1.001; v *= 10 {
		label := fmt.Sprintf("%g", math.Round(v*1e6)/1e6)
		if v >= 1 {
			label = figure.Thousands(int(math.Round(v)))
		}
		out = append(out, plot.Tick{Value: v, Label: label})
	}
	return out
}
