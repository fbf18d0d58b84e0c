package svgplot

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAPlotIsWellFormedAndHasItsLines(t *testing.T) {
	for name, p := range map[string]Plot{
		"nothing":    {},
		"zeros":      {Title: "<a & b>", Step: 1, Lines: []Series{{"z", []float64{0, 0}}}},
		"a scale":    {Step: 1, Ticks: []string{"1", "<10>", "100"}, Lines: []Series{{"z", []float64{1, 2, 3}}}},
		"decades":    {Step: 1, Log: true, Lines: []Series{{"z", []float64{0, 0.02, 3000}}, {"none", nil}}},
		"two series": {Title: "t", X: "s", Y: "requests", Step: 0.1, Marks: []Mark{{0.1, "fail"}}, Lines: []Series{{"a", []float64{1, 2, 30_000}}, {"b", []float64{5}}}},
	} {
		out := string(p.SVG())
		d := xml.NewDecoder(strings.NewReader(out))
		lines := 0
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, out)
			}
			if s, ok := token.(xml.StartElement); ok && s.Name.Local == "polyline" {
				lines++
			}
		}
		if lines != len(p.Lines) || strings.Contains(out, "NaN") || strings.Contains(out, "Inf") {
			t.Errorf("%s: %d lines in\n%s", name, lines, out)
		}
	}
}
