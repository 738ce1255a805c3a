package instructions

import (
	"errors"
	"math"
	"os"
	"testing"

	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// recordedOn is the version of the counts below, in thousands: Redis 7.0.15 as packaged by Debian 12.
const recordedOn = "7.0.15"

// margin is the accepted deviation. Counts do not depend on the machine's load. If a change moves a count by more, record
// the new count here and in docs/measurements.md, and give the reason in the commit message.
const margin = .05

var recorded = map[string]float64{
	"instructions_handwritten_k": 71.0, "instructions_alone_k": 125, "instructions_batch16_k": 66.5, "instructions_batch64_k": 62.5,
	"instructions_general_alone_k": 230, "instructions_general_batch16_k": 112, "instructions_relay_k": 30, "instructions_relay_given_k": 37.5,
}

func TestInstructionsAreThoseRecorded(t *testing.T) {
	t.Parallel()
	if os.Getenv("CI") == "" && os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("takes a minute: set LUATX_VERIFY=1")
	}
	redistest.Need(t)
	server, err := redistest.Find()
	if err != nil {
		t.Fatal(err)
	}
	if server.Version != recordedOn {
		t.Skipf("the counts were recorded on Redis %s, but this server is version %s", recordedOn, server.Version)
	}
	c, err := newCounter(t.Context())
	if skip := suite.SkipError(""); errors.As(err, &skip) {
		t.Skip(skip)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	for _, r := range rows {
		got, err := r.count(t.Context(), c, counted)
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		t.Logf("%s: %.1f", r.figure, got)
		if want := recorded[r.figure]; math.Abs(got-want) > margin*want {
			t.Errorf("%s: %.1f thousand instructions, recorded are %.1f", r.name, got, want)
		}
	}
}
