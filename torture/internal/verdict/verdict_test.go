package verdict

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/history"
	"github.com/luatx/luatx/torture/internal/nemesis"
)

const second = int64(time.Second)

// sound returns a small world without violations: a transfer, money that is sent and arrives, an order, a transaction that
// failed, and a tick.
func sound() Evidence {
	a := Holding{
		Branch:   ground.Branch{N: 0, Name: "a"},
		Balances: map[string]int64{"a0": 880, "a1": 1100},
		Effects: map[string]ground.Effect{
			"c1": {Kind: ground.Move, From: "a0", To: "a1", Amount: 100, Event: "own-e1", Lane: "a0", N: 1},
			"c2": {Kind: ground.Send, From: "a0", To: "b/a3", Amount: 20, Event: "own-e2", Lane: ground.NoLane},
			"o1": {Kind: ground.Order, From: "p1", To: "-", Amount: 5, Event: "own-e3", Lane: "p1", N: 1},
			"c3": {Kind: ground.Move, From: "a0", To: "a0", Event: "e5", Lane: "a0", N: 2},
		},
		Times:   map[string]int64{"c1": 1, "c2": 1, "o1": 1, "c3": 1},
		Sums:    map[string]int64{"out": 20, "count": 4},
		Lanes:   map[string]int64{"a0": 2, "p1": 1},
		Stock:   map[string]int64{"p1": -5},
		Entries: map[string]bool{"own-e1": true, "own-e2": true, "own-e3": true},
		Orders:  []string{"o1", "o1"},
		Ticks:   []string{"1-1"}, Ticked: map[string]int64{"1-1": 1},
		Signals: []string{"1-1"}, Signalled: map[string]int64{"1-1": 1},
		Steps: []string{"11000-0", "12000-0", "13000-0"}, Stumbling: map[string]bool{"12000-0": true},
		Stepped: []string{"11000-0", "13000-0"}, Stumbled: []string{"12000-0"},
	}
	b := Holding{
		Branch:   ground.Branch{N: 1, Name: "b"},
		Balances: map[string]int64{"a3": 1020},
		Effects:  map[string]ground.Effect{"own-e2": {Kind: ground.Credit, From: "-", To: "a3", Amount: 20, Event: "own-e4", Lane: ground.NoLane}},
		Times:    map[string]int64{"own-e2": 1}, Sums: map[string]int64{"in": 20, "count": 1},
		Entries: map[string]bool{"own-e4": true}, Orders: []string{"own-e2"},
	}
	call := func(id, op string, tries ...history.Line) *Call {
		c := &Call{Line: history.Line{ID: id, Op: op}}
		for i, try := range tries {
			try.ID, try.Op, try.Start, try.End = id, op, second*int64(10+i), second*int64(11+i)
			try.Again = i < len(tries)-1
			c.Tries = append(c.Tries, try)
		}
		return c
	}
	return Evidence{
		Samples: []Sample{{0, 11 * second, "11000"}, {1, 12 * second, "0"}, {0, 13 * second, "13000"}},
		World: &World{Branches: []Holding{a, b}, Refused: []string{"own-e3"}, Published: []Publication{
			{ID: "own-e1", Of: "c1", Subject: "a", At: 12 * second},
			{ID: "own-e2", Of: "c2", Subject: "b", Type: "sent", At: 12 * second, MS: 12_000, Due: 11_000},
			{ID: "own-e3", Of: "o1", Subject: "a", At: 13 * second, LeftToPublish: 600},
			{ID: "e5", Of: "c3", Subject: "a", At: 13 * second},
			{ID: "own-e1", Of: "c1", Subject: "a", At: 14 * second}, // a late repetition
			{ID: "own-e4", Of: "own-e2", Subject: "b", At: 14 * second},
		}},
		Story: &Story{
			Calls: map[string]*Call{
				"c1": call("c1", history.Guarded, history.Line{Outcome: history.Unknown}, history.Line{Outcome: history.Replayed, Value: "7", Replicated: true}, history.Line{Outcome: history.Duplicate, Value: "7"}),
				"c2": call("c2", history.Send, history.Line{Outcome: history.Committed}),
				"c3": call("c3", history.Guarded), // its process was killed
				"c4": call("c4", history.Guarded, history.Line{Outcome: history.Short}),
				"d1": call("d1", history.Doomed, history.Line{Outcome: history.Nothing, Err: "no integer"}),
			},
			Puts:   map[string]history.Line{"o1": {Kind: history.Put, ID: "o1", Outcome: history.Committed, Start: 9 * second, End: 10 * second}},
			Events: map[string]map[string]bool{"o1": {"own-e3": true}},
		},
	}
}

// put adds an input that was acknowledged to its producer.
func (e *Evidence) put(id string) {
	line := e.Story.Puts["o1"]
	line.ID = id
	e.Story.add(line)
}

func broken(checks *Checks) []string {
	var names []string
	for _, c := range checks.List() {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestJudgeAcceptsSoundWorld(t *testing.T) {
	t.Parallel()
	var checks Checks
	if lost := Judge(sound(), &checks); !checks.OK() || lost != (Losses{}) {
		t.Errorf("%+v, lost %+v", checks.List(), lost)
	}
}

func TestJudgeReportsEachViolatedInvariant(t *testing.T) {
	t.Parallel()
	branch := func(e Evidence) *Holding { return &e.World.Branches[0] }
	for name, c := range map[string]struct {
		damage func(e *Evidence)
		want   []string
	}{
		"wrong balance":               {func(e *Evidence) { branch(*e).Balances["a0"]++ }, []string{Money}},
		"negative balance":            {func(e *Evidence) { branch(*e).Balances["a1"] = -1 }, []string{Money, NoDebt}},
		"order applied twice":         {func(e *Evidence) { branch(*e).Times["o1"] = 2 }, []string{AppliedOnce}},
		"stock reduced twice":         {func(e *Evidence) { branch(*e).Stock["p1"] = -10 }, []string{AppliedOnce}},
		"effect without its write":    {func(e *Evidence) { branch(*e).Times["c9"] = 1 }, []string{AppliedOnce}},
		"wrong count of effects":      {func(e *Evidence) { branch(*e).Sums["count"]++ }, []string{Money}},
		"commit without event":        {func(e *Evidence) { delete(branch(*e).Entries, "own-e1") }, []string{OutboxSet}},
		"event without commit":        {func(e *Evidence) { branch(*e).Entries["own-e9"] = true }, []string{OutboxSet}},
		"published event stays":       {func(e *Evidence) { branch(*e).Entries["e5"] = true }, []string{OutboxSet}},
		"partial rollback":            {func(e *Evidence) { branch(*e).Doomed = "text is gone" }, []string{ErrorsNothing}},
		"doomed call committed":       {func(e *Evidence) { e.Story.Calls["d1"].Tries[0].Outcome = history.Committed }, []string{ErrorsNothing}},
		"failed call applied":         {func(e *Evidence) { e.Story.Calls["c2"].Tries[0].Outcome = history.Nothing }, []string{ErrorsNothing}},
		"committed call not applied":  {func(e *Evidence) { e.Story.Calls["c4"].Tries[0].Outcome = history.Committed }, []string{AckedApplied}},
		"two results":                 {func(e *Evidence) { e.Story.Calls["c1"].Tries[2].Value = "8" }, []string{FirstResult}},
		"committed twice":             {func(e *Evidence) { twice(e.Story.Calls["c1"]) }, []string{FirstResult}},
		"input not applied":           {func(e *Evidence) { branch(*e).Orders = append(branch(*e).Orders, "o2") }, []string{AckedApplied}},
		"input lost":                  {func(e *Evidence) { e.put("o3") }, []string{AckedApplied}},
		"effect without input":        {func(e *Evidence) { branch(*e).Orders = nil }, []string{AppliedOnce, AckedApplied}},
		"tick applied twice":          {func(e *Evidence) { branch(*e).Ticked["1-1"] = 2 }, []string{FencedOnce}},
		"tick not applied":            {func(e *Evidence) { delete(branch(*e).Ticked, "1-1") }, []string{FencedOnce}},
		"signal applied twice":        {func(e *Evidence) { branch(*e).Signalled["1-1"] = 2 }, []string{TriggeredOnce}},
		"signal not applied":          {func(e *Evidence) { delete(branch(*e).Signalled, "1-1") }, []string{TriggeredOnce}},
		"signal without input":        {func(e *Evidence) { branch(*e).Signalled["1-2"] = 1 }, []string{TriggeredOnce}},
		"step applied twice":          {func(e *Evidence) { stepped(*e, "11000-0", "11000-0", "13000-0") }, []string{SteppedOnce}},
		"step not applied":            {func(e *Evidence) { stepped(*e, "13000-0") }, []string{SteppedOnce}},
		"steps out of order":          {func(e *Evidence) { stepped(*e, "13000-0", "11000-0") }, []string{SteppedOnce}},
		"step without input":          {func(e *Evidence) { stepped(*e, "11000-0", "12500-0", "13000-0") }, []string{SteppedOnce}},
		"last step not applied":       {func(e *Evidence) { stepped(*e, "11000-0") }, []string{SteppedOnce}},
		"failed step applied":         {func(e *Evidence) { stepped(*e, "11000-0", "12000-0", "13000-0") }, []string{SteppedOnce}},
		"failed step lost":            {func(e *Evidence) { branch(*e).Stumbled = nil }, []string{StumbledOnce}},
		"two dead letters for a step": {func(e *Evidence) { branch(*e).Stumbled = []string{"12000-0", "12000-0"} }, []string{StumbledOnce}},
		"position goes back":          {func(e *Evidence) { e.Samples[2].Offset = "10999" }, []string{NeverBack}},
		"tick without input":          {func(e *Evidence) { branch(*e).Ticked["1-2"] = 1 }, []string{FencedOnce}},
		"not published":               {func(e *Evidence) { e.unpublish("e5") }, []string{PublishedAll}},
		"parked event lost":           {func(e *Evidence) { e.unpublish("own-e3") }, []string{PublishedAll, ParkedKept}},
		"event of no commit":          {func(e *Evidence) { e.publish(Publication{ID: "own-e8", Of: "c4", Subject: "a"}) }, []string{NoGhosts}},
		"publish longer than lease":   {func(e *Evidence) { e.World.Published[2].LeftToPublish = 1001 }, []string{LeaseOutlasts}},
		"published early":             {func(e *Evidence) { e.World.Published[1].Due = 12_001 }, []string{NotEarly}},
		"lane out of order":           {func(e *Evidence) { p := e.World.Published; p[0], p[3] = p[3], p[0]; e.unpublishLast("own-e1") }, []string{LaneOrder}},
		"two events at one place":     {func(e *Evidence) { place(branch(*e), "c3", 1) }, []string{LaneOrder}},
		"wrong counter of lane":       {func(e *Evidence) { branch(*e).Lanes["p1"] = 2 }, []string{LaneOrder}},
		"transfer lost":               {func(e *Evidence) { arrive(e, false, 20) }, []string{AckedApplied, Arrives, Money, NoGhosts, OutboxSet}},
		"wrong amount arrives":        {func(e *Evidence) { arrive(e, true, 19) }, []string{Arrives, Money}},
		"truncated body":              {func(e *Evidence) { e.World.Published[0].Declared = 50_000 }, []string{BodiesWhole}},
		"body without event":          {func(e *Evidence) { branch(*e).Bodies = "body:x belongs to no event" }, []string{BodiesKept}},
		"different event of a rerun":  {func(e *Evidence) { e.Story.Events["o1"]["own-e7"] = true }, []string{StableEvents}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := sound()
			c.damage(&e)
			var checks Checks
			Judge(e, &checks)
			slices.Sort(c.want)
			if got := broken(&checks); !slices.Equal(got, c.want) {
				t.Errorf("violated: %q, want %q", got, c.want)
			}
		})
	}
}

func stepped(e Evidence, ids ...string) { e.World.Branches[0].Stepped = ids }

func twice(c *Call) {
	c.Tries[0].Outcome, c.Tries[1].Outcome = history.Committed, history.Committed
}

func place(h *Holding, id string, n int64) {
	effect := h.Effects[id]
	effect.N = n
	h.Effects[id] = effect
}

func arrive(e *Evidence, arrived bool, amount int64) {
	b := &e.World.Branches[1]
	effect := b.Effects["own-e2"]
	effect.Amount = amount
	b.Effects["own-e2"] = effect
	if !arrived {
		delete(b.Effects, "own-e2")
		delete(b.Times, "own-e2")
	}
}

func (e *Evidence) publish(p Publication) { e.World.Published = append(e.World.Published, p) }

func (e *Evidence) unpublish(id string) {
	e.World.Published = slices.DeleteFunc(e.World.Published, func(p Publication) bool { return p.ID == id })
}

// unpublishLast removes the last publication of an event.
func (e *Evidence) unpublishLast(id string) {
	for i, p := range slices.Backward(e.World.Published) {
		if p.ID == id {
			e.World.Published = slices.Delete(e.World.Published, i, i+1)
			return
		}
	}
}

func TestFailoverExcusesOnlyUnreplicatedLossesOfItsBranchesDuringIt(t *testing.T) {
	t.Parallel()
	outage := func(branch int) []nemesis.Outage {
		return []nemesis.Outage{{Branches: []int{branch}, From: time.Unix(10, 0), To: time.Unix(15, 0)}}
	}
	loseCommit := func(e *Evidence) { e.Story.Calls["c4"].Tries[0].Outcome = history.Committed }
	loseInput := func(e *Evidence) { e.World.Branches[0].Orders = nil } // its effect stays
	dead := history.Line{Kind: history.Put, ID: "o1", Outcome: history.Unknown, Start: second, End: math.MaxInt64}
	for name, c := range map[string]struct {
		damage func(e *Evidence)
		branch int
		want   []string
		lost   Losses
	}{
		"lost commit":                           {loseCommit, 0, nil, Losses{Commits: 1}},
		"lost commit of another branch":         {loseCommit, 1, []string{AckedApplied}, Losses{}},
		"lost commit that replicas had":         {func(e *Evidence) { loseCommit(e); e.Story.Calls["c4"].Tries[0].Replicated = true }, 0, []string{Replicated}, Losses{Commits: 1}},
		"lost input":                            {func(e *Evidence) { e.put("o3") }, 0, nil, Losses{Inputs: 1}},
		"event of a lost commit":                {func(e *Evidence) { e.publish(Publication{ID: "own-e8", Of: "c4", At: 12 * second}) }, 0, nil, Losses{Ghosts: 1}},
		"event of a lost commit with a barrier": {func(e *Evidence) { e.Barrier = true; e.publish(Publication{ID: "own-e8", Of: "c4", At: 12 * second}) }, 0, []string{NoGhosts}, Losses{Ghosts: 1}},
		"event of a lost commit, much later":    {func(e *Evidence) { e.publish(Publication{ID: "own-e8", Of: "c4", At: 16 * second}) }, 0, []string{NoGhosts}, Losses{}},
		"lost input, already read":              {loseInput, 0, nil, Losses{Inputs: 1}},
		"lost input, write outcome unknown":     {func(e *Evidence) { loseInput(e); e.Story.add(dead) }, 0, nil, Losses{}},
		"lost input of another branch":          {loseInput, 1, []string{AppliedOnce, AckedApplied}, Losses{}},
		"lost step, already read":               {func(e *Evidence) { stepped(*e, "11000-0", "12500-0", "13000-0") }, 0, nil, Losses{Inputs: 1}},
		"lost step of another branch":           {func(e *Evidence) { stepped(*e, "11000-0", "12500-0", "13000-0") }, 1, []string{SteppedOnce}, Losses{}},
		"steps out of order":                    {func(e *Evidence) { stepped(*e, "13000-0", "11000-0") }, 0, []string{SteppedOnce}, Losses{}},
		"position goes back":                    {func(e *Evidence) { e.Samples[2].Offset = "10999" }, 0, nil, Losses{}},
		"position of another branch goes back":  {func(e *Evidence) { e.Samples[2].Offset = "10999" }, 1, []string{NeverBack}, Losses{}},
		"partial commit":                        {func(e *Evidence) { e.World.Branches[0].Balances["a0"]++ }, 0, []string{Money}, Losses{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := sound()
			e.Outages = outage(c.branch)
			c.damage(&e)
			var checks Checks
			if lost := Judge(e, &checks); lost != c.lost || !slices.Equal(broken(&checks), c.want) {
				t.Errorf("lost %+v, want %+v; violated %q, want %q", lost, c.lost, broken(&checks), c.want)
			}
		})
	}
}

func TestFailedCallMayBeAppliedOnlyWhileRequestsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		span Span
		want []string
	}{
		{Span{10 * second, 11 * second}, nil},
		{Span{0, 9 * second}, []string{ErrorsNothing}},
		{Span{12 * second, 20 * second}, []string{ErrorsNothing}},
	} {
		e := sound()
		e.Story.Calls["c2"].Tries[0].Outcome = history.Short
		e.Repeats = []Span{c.span}
		var checks Checks
		if Judge(e, &checks); !slices.Equal(broken(&checks), c.want) {
			t.Errorf("%+v: violated %q, want %q", c.span, broken(&checks), c.want)
		}
	}
}

func TestChecksKeepTheFirstProblems(t *testing.T) {
	t.Parallel()
	var checks Checks
	for i := range 3 * shown {
		checks.Hold("a", i%2 == 0, "problem %d", i)
	}
	got := checks.List()[0]
	if got.OK || got.Checked != 3*shown || got.Failed != 3*shown/2 || len(got.Problems) != shown || got.Problems[0] != "problem 1" {
		t.Errorf("%+v", got)
	}
}
