// Package svgplot draws lines over time or another scale, for reports: a title, two axes, a legend, and no more.
package svgplot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Series is one line: a value for each step of X.
type Series struct {
	Name   string
	Values []float64
}

// Plot is a picture to be.
type Plot struct {
	Title string
	X, Y  string   // what the axes show
	Step  float64  // of X, between two values
	Ticks []string // what X is at each value, where that is no time and no even step: Step is 1 then
	Log   bool     // Y goes by powers of ten, and what is not above 0 is left out
	Marks []Mark   // of moments
	Lines []Series
}

// Mark is a moment that is named in the picture.
type Mark struct {
	X    float64
	Name string
}

const (
	width, height             = 900, 360
	left, right, top, bottom  = 80, 20, 50, 50
	innerWidth, innerHeight   = width - left - right, height - top - bottom
	fontSize, legendStep, gap = 12, 190, 5
)

var colours = []string{"#c0392b", "#2471a3", "#1e8449", "#8e44ad", "#b9770e"}

// SVG draws the plot. A second plot of the same values is the same, byte for byte.
func (p *Plot) SVG() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">`+"\n", width, height, fontSize)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	text(&b, left, 20, "start", p.Title)
	least, most, span := p.bounds()
	y := func(v float64) float64 { return float64(top+innerHeight) - (v-least)/(most-least)*innerHeight }
	steps := 4.0
	if p.Log {
		steps = most - least
	}
	for i := 0.0; i <= steps; i++ {
		v := least + (most-least)*i/steps
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", left, y(v), width-right)
		label := v
		if p.Log {
			label = math.Pow(10, v)
		}
		text(&b, left-gap, y(v)+4, "end", number(label))
		if len(p.Ticks) == 0 {
			text(&b, left+i/steps*innerWidth, height-bottom+18, "middle", number(i/steps*span))
		}
	}
	for i, tick := range p.Ticks {
		text(&b, left+float64(i)/span*innerWidth, height-bottom+18, "middle", tick)
	}
	text(&b, left+innerWidth/2, height-12, "middle", p.X)
	text(&b, left, float64(top)-6, "start", p.Y)
	for _, m := range p.Marks {
		x := left + m.X/span*innerWidth
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#999" stroke-dasharray="4 3"/>`+"\n", x, top, height-bottom)
		text(&b, x+3, float64(top)+10, "start", m.Name)
	}
	for i, s := range p.Lines {
		colour := colours[i%len(colours)]
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.3" points="`, colour)
		for n, v := range s.Values {
			if p.Log {
				v = math.Log10(v)
			}
			if !math.IsInf(v, 0) && !math.IsNaN(v) {
				fmt.Fprintf(&b, "%.1f,%.1f ", left+float64(n)*p.Step/span*innerWidth, y(v))
			}
		}
		b.WriteString("\"/>\n")
		x := width - right - (len(p.Lines)-i)*legendStep
		fmt.Fprintf(&b, `<path d="M%d 32h20" stroke="%s" stroke-width="3"/>`+"\n", x, colour)
		text(&b, float64(x+25), 36, "start", s.Name)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// bounds are the ends of the axes; of Y the powers of ten, if it goes by them.
func (p *Plot) bounds() (least, most, span float64) {
	least = math.Inf(1)
	for _, s := range p.Lines {
		for _, v := range s.Values {
			most = max(most, v)
			if v > 0 {
				least = min(least, v)
			}
		}
		span = max(span, float64(len(s.Values)-1)*p.Step)
	}
	if span == 0 {
		span = 1
	}
	if most == 0 {
		least, most = 1, 1
	}
	if p.Log {
		least = math.Floor(math.Log10(least))
		return least, max(math.Ceil(math.Log10(most)), least+1), span
	}
	scale := math.Pow(10, math.Floor(math.Log10(most)))
	return 0, math.Ceil(most/scale*2) / 2 * scale, span
}

func number(v float64) string {
	if v >= 10_000 {
		return strconv.FormatFloat(v/1000, 'f', -1, 64) + "k"
	}
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

func text(b *strings.Builder, x, y float64, anchor, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
}
