package trigger

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
)

func TestReportHasTheLagOfTheGroupAndAShortError(t *testing.T) {
	t.Parallel()
	group := func(name string, lag any) any {
		return []any{"name", name, "consumers", 1, "pending", 0, "last-delivered-id", "5-1", "entries-read", 3, "lag", lag}
	}
	for name, c := range map[string]struct {
		groups any
		want   int64
	}{
		"of one":           {[]any{group("g", 7)}, 7},
		"of the second":    {[]any{group("a", 9), group("g", 7)}, 7},
		"of another alone": {[]any{group("a", 9)}, -1},
		"unknown":          {errors.New("ERR no"), -1},
	} {
		inBubble(t, &scripted.Group{Say: map[string]any{"xinfo": c.groups, "xrange": []any{scripted.Entry("6-1")}}}, Config{}, func(t *testing.T, g *grouped, _ *scripted.Server, _ *rig.Lines) {
			r := New(g.cfg)
			r.board.failed(errors.New(strings.Repeat("x", process.MaxError+1)))
			got := r.report(t.Context(), g).Trigger
			if got.Lag != c.want || len(got.LastError) != process.MaxError {
				t.Errorf("%s: lag %d, want %d; an error of %d bytes", name, got.Lag, c.want, len(got.LastError))
			}
		})
	}
}

func TestOnlyTriggersWithANamespaceAndADriverOfThisPackageAreListed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		driver    Driver
		namespace string
		listed    bool
	}{
		{newFake(t, 0), "shop", false}, {newFake(t, 0), "", false}, {&plain{}, "", false}, {&plain{}, "shop", true},
	} {
		r := New(Config{Function: "f", Namespace: c.namespace})
		if list := r.processes(c.driver); (list != nil) != c.listed {
			t.Errorf("%T in %q: %v", c.driver, c.namespace, list)
		}
	}
}

// gapped is a driver with gaps.
type gapped struct{ *fakeDriver }

func (gapped) Gaps() Gaps { return Gaps{Count: 7} }

func TestStatsHaveTheGapsOfACustomDriver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, Config{Driver: gapped{newFake(t, 0)}})
		synctest.Wait()
		if got := s.Stats().Gaps.Count; got != 7 {
			t.Errorf("%d gaps", got)
		}
		s.end()
	})
}
