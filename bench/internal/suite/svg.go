package suite

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	width  = 20 * vg.Centimeter
	height = 11 * vg.Centimeter
)

// family is the font that the canvas uses for its layout. Not every viewer has it.
const family = "Liberation Sans"

// palette holds colors that viewers with color blindness can distinguish.
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff},
	color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	color.RGBA{0x55, 0x55, 0x55, 0xff},
	color.RGBA{0x8c, 0x56, 0x4b, 0xff},
}

var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{},
}

// SVG draws the plot, with a bar from the lowest to the highest round at each point.
func (p Plot) SVG() ([]byte, error) {
	canvas := plot.New()
	for _, text := range []*text.Style{
		&canvas.Title.TextStyle, &canvas.X.Label.TextStyle, &canvas.Y.Label.TextStyle, &canvas.X.Tick.Label,
		&canvas.Y.Tick.Label, &canvas.Legend.TextStyle,
	} {
		text.Font.Variant = "Sans"
	}
	canvas.Title.Text, canvas.X.Label.Text, canvas.Y.Label.Text = p.Title, p.XLabel, p.YLabel
	canvas.BackgroundColor = color.White
	canvas.NominalX(p.X...)
	canvas.X.Padding = vg.Centimeter / 2
	canvas.Legend.Top, canvas.Legend.XOffs, canvas.Legend.Padding = true, -vg.Centimeter/4, vg.Points(2)
	canvas.Add(plotter.NewGrid())
	for i, series := range p.Series {
		if err := p.draw(canvas, i, series); err != nil {
			return nil, fmt.Errorf("%s: %w", series.Name, err)
		}
	}
	switch {
	case canvas.Y.Min > canvas.Y.Max: // nothing was drawn
		canvas.Y.Min, canvas.Y.Max = 0, 1
	case p.LogY:
		canvas.Y.Scale, canvas.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(ticks)
	default:
		canvas.Y.Min = 0
	}
	canvas.X.Max = max(canvas.X.Max, float64(max(len(p.X)-1, 1))*1.45) // room for the legend
	writer, err := canvas.WriterTo(width, height, "svg")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = writer.WriteTo(&out)
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:"+family), []byte("font-family:"+family+",Arial,Helvetica,sans-serif")), err
}

// ticks returns the ticks of a logarithmic axis: 1, 2 and 5 of each power of ten.
func ticks(low, high float64) []plot.Tick {
	var all []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if at := n * power; at >= low && at <= high {
				all = append(all, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'g', 3, 64)})
			}
		}
	}
	return all
}

// points are the measured points of a series. The error bars extend to the lowest and highest round.
type points struct {
	plotter.XYs
	plotter.YErrors
}

func (p Plot) draw(canvas *plot.Plot, i int, series Series) error {
	var all points
	for x, y := range series.Y {
		if x >= len(p.X) || y.Median <= 0 || math.IsInf(y.Median, 0) || math.IsNaN(y.Median) {
			continue
		}
		low := y.Low
		if p.LogY {
			low = max(low, y.Median/1000)
		}
		all.XYs = append(all.XYs, plotter.XY{X: float64(x), Y: y.Median})
		all.YErrors = append(all.YErrors, struct{ Low, High float64 }{y.Median - low, y.High - y.Median})
	}
	if len(all.XYs) == 0 {
		return nil
	}
	line, marks, err := plotter.NewLinePoints(all.XYs)
	if err != nil {
		return err
	}
	bars, err := plotter.NewYErrorBars(all)
	if err != nil {
		return err
	}
	line.Color, marks.Color, bars.Color = palette[i%len(palette)], palette[i%len(palette)], palette[i%len(palette)]
	line.Width, marks.Shape = vg.Points(1.2), shapes[i%len(shapes)]
	canvas.Add(line, marks, bars)
	canvas.Legend.Add(series.Name, line, marks)
	return nil
}
