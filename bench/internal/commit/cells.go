package commit

import (
	"fmt"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/measure/ways"
)

// cell is a point on an axis.
type cell struct {
	measure.Cell
	on        kind
	roundTrip time.Duration
	ways      []string
	label     string // on the axis
	short     bool   // measured in a short run, too
}

// axis is a row of cells that differ in one parameter.
type axis struct {
	name, caption, label string
	ways                 []string // the rows of its table
	cells                []cell   // may include the base
}

// A few ways show the effect of an axis. The base and the axis of callers have all ways.
var (
	everyWay = ways.Names()
	mainWays = []string{ways.ThreeStep, ways.Watch, ways.Luatx, ways.SeparateAck, ways.StreamOutbox, ways.Batch, ways.Handwritten, ways.Pipeline16}
	fewWays  = []string{ways.ThreeStep, ways.Luatx, ways.Unbatched, ways.Handwritten}
)

const (
	baseCallers = 64
	basePayload = 300
)

// base returns the cell from which all axes start.
func base() cell {
	return cell{
		Cell: measure.Cell{Name: "base", Callers: baseCallers, Payload: basePayload, Tags: 1},
		on:   plain, ways: everyWay, label: "base", short: true,
	}
}

// baseAs returns the base with the label that it has on an axis.
func baseAs(label string) cell {
	c := base()
	c.label = label
	return c
}

// vary returns the base with one change.
func vary(name, label string, change func(*cell)) cell {
	c := base()
	c.Name, c.label, c.ways, c.short = name, label, mainWays, false
	change(&c)
	return c
}

func axes() []axis {
	callers := axis{"callers", "Concurrent callers on one server, with events of 300 bytes.", "callers", everyWay, nil}
	for _, n := range []int{1, 8, baseCallers, 256} {
		if n == baseCallers {
			callers.cells = append(callers.cells, baseAs("64"))
			continue
		}
		callers.cells = append(callers.cells, vary(fmt.Sprintf("callers %d", n), fmt.Sprint(n), func(c *cell) {
			c.Callers, c.ways, c.short = n, everyWay, n <= 8
		}))
	}
	distance := axis{"distance", "Servers whose replies are delayed by 1 ms.", "round trip", mainWays, []cell{
		baseAs("loopback, 64 callers"),
		vary("round trip 1 ms", "1 ms, 1 caller", func(c *cell) { c.roundTrip, c.Callers, c.short = time.Millisecond, 1, true }),
		vary("round trip 1 ms, 64 callers", "1 ms, 64 callers", func(c *cell) { c.roundTrip = time.Millisecond }),
	}}
	tags := axis{"tags", "Transactions on 1 to 256 tags of three masters.", "tags", mainWays, nil}
	for _, n := range []int{1, 3, 16, 256} {
		tags.cells = append(tags.cells, vary(fmt.Sprintf("masters 3, tags %d", n), fmt.Sprint(n), func(c *cell) { c.on, c.Tags = masters, n }))
	}
	payload := axis{"payload", "Events of 100 bytes to 100 KB.", "bytes", mainWays, nil}
	for _, n := range []int{100, basePayload, 10_000, 100_000} {
		if n == basePayload {
			payload.cells = append(payload.cells, baseAs("300"))
			continue
		}
		payload.cells = append(payload.cells, vary(fmt.Sprintf("payload %d", n), fmt.Sprint(n), func(c *cell) { c.Payload = n }))
	}
	aof := axis{"aof", "Servers without and with an append-only file.", "appendfsync", mainWays, []cell{
		baseAs("none"),
		vary("AOF everysec", "everysec", func(c *cell) { c.on = everysec }),
		vary("AOF always", "always", func(c *cell) { c.on = always }),
	}}
	return []axis{callers, distance, tags, payload, aof}
}

// shortened returns the part that a short run measures.
func shortened(all []axis) []axis {
	for i := range all {
		all[i].cells, all[i].ways = slices.DeleteFunc(all[i].cells, func(c cell) bool { return !c.short }), fewWays
		for j := range all[i].cells {
			all[i].cells[j].ways = fewWays
		}
	}
	return slices.DeleteFunc(all, func(a axis) bool { return len(a.cells) < 2 })
}
