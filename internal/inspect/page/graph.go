package page

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/inspect"
)

// graphHeight and barWidth are in units of the picture. The style sheet scales it.
const (
	graphHeight = 60
	barWidth    = 10
)

// graph is a bar chart in SVG, with a text for users who cannot see it.
type graph struct {
	Title, Most string
	Bars        template.HTML // made of numbers here, so it contains no external text
	Width       int
}

// graphs returns the charts of the agent's activity, minute by minute.
func graphs(list []inspect.Minute) []graph {
	operations, longest := make([]float64, len(list)), make([]float64, len(list))
	for i, m := range list {
		operations[i], longest[i] = float64(m.Operations), float64(m.Longest)
	}
	return []graph{
		draw("Objects written", operations, func(most float64) string { return fmt.Sprintf("at most %.0f in a minute", most) }),
		draw("Slowest sync", longest, func(most float64) string {
			return "at most " + time.Duration(most).Round(10*time.Microsecond).String()
		}),
	}
}

func draw(title string, values []float64, words func(most float64) string) graph {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	g := graph{Title: title, Most: "nothing", Width: barWidth * len(values)}
	if most == 0 {
		return g
	}
	g.Most = words(most)
	var b strings.Builder
	for i, v := range values {
		if h := v / most * graphHeight; h > 0 {
			h = max(h, 1)
			fmt.Fprintf(&b, `<rect x="%d" y="%.1f" width="%d" height="%.1f"/>`, i*barWidth+1, graphHeight-h, barWidth-2, h)
		}
	}
	g.Bars = template.HTML(b.String())
	return g
}
