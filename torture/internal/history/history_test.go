package history_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/torture/internal/history"
)

func TestCheckClockRejectsAClockThatIsOff(t *testing.T) {
	t.Parallel()
	log, err := history.Create(t.TempDir(), "w0.1")
	redistest.Must(t, err)
	defer func() { _ = log.Close() }()
	if err := log.CheckClock(0); err != nil {
		t.Error(err)
	}
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		if err := log.CheckClock(off); err == nil {
			t.Errorf("CheckClock accepted a correct clock as one that is off by %v", off)
		}
	}
}

func TestReadReturnsWholeLinesOfKilledProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want []history.Line
	for _, name := range []string{"w0.1", "w1.1"} {
		log, err := history.Create(dir, name)
		redistest.Must(t, err)
		var writing sync.WaitGroup
		for range 4 {
			line := history.Line{Kind: history.Told, ID: name, Outcome: history.Committed, Value: "\n", Again: true}
			want = append(want, line)
			writing.Go(func() {
				if err := log.Add(line); err != nil {
					t.Error(err)
				}
			})
		}
		writing.Wait()
		redistest.Must(t, log.Close())
	}
	killed := filepath.Join(dir, "w1.1.history")
	whole, err := os.ReadFile(killed)
	redistest.Must(t, err)
	redistest.Must(t, os.WriteFile(killed, append(whole, `{"k":"told","id":"cut o`...), 0o600))
	var got []history.Line
	redistest.Must(t, history.Read(dir, func(line history.Line) error { got = append(got, line); return nil }))
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := history.Create(dir, "w0.1"); err == nil {
		t.Error("Create succeeded twice for the same name")
	}
	redistest.Must(t, os.WriteFile(killed, []byte("{}\nnonsense\n"), 0o600))
	if err := history.Read(dir, func(history.Line) error { return nil }); err == nil {
		t.Error("Read accepted a malformed line")
	}
}
