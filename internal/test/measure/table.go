package measure

import (
	"fmt"
	"slices"
)

// Table is what Interleave measured in one cell.
type Table struct {
	// Cell is the cell's name.
	Cell string `json:"cell"`
	// Ways are the names of the ways, in their order.
	Ways []string `json:"ways"`
	// Rounds has a sample for each way, in the order of Ways, for each round.
	Rounds [][]Sample `json:"rounds"`
}

// Spread is a number as the rounds have it: the median, the lowest and the highest.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// Value returns a metric of one way over all rounds. It is an error where the way was not measured.
func (t Table) Value(way string, metric Metric) (Spread, error) {
	w, err := t.index(way)
	if err != nil {
		return Spread{}, err
	}
	return t.over(func(round []Sample) float64 { return metric(round[w]) }), nil
}

// Ratio returns a way's metric divided by the base's: of the ratios within each round. It is an error where one of them
// was not measured.
func (t Table) Ratio(way, base string, metric Metric) (Spread, error) {
	w, err := t.index(way)
	if err != nil {
		return Spread{}, err
	}
	b, err := t.index(base)
	if err != nil {
		return Spread{}, err
	}
	return t.over(func(round []Sample) float64 { return ratio(metric(round[w]), metric(round[b])) }), nil
}

func (t Table) over(number func(round []Sample) float64) Spread {
	values := make([]float64, len(t.Rounds))
	for i, round := range t.Rounds {
		values[i] = number(round)
	}
	return Over(values)
}

func (t Table) index(way string) (int, error) {
	i := slices.Index(t.Ways, way)
	if i < 0 || len(t.Rounds) == 0 {
		return 0, fmt.Errorf("%s: %q was not measured", t.Cell, way)
	}
	return i, nil
}

// Over returns the spread of numbers; zero where there are none.
func Over(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Low: sorted[0], High: sorted[n-1]}
}
