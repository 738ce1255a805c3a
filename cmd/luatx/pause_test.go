package main

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestPauseAndResumeShowInStatsAndAudit(t *testing.T) {
	t.Parallel()
	everywhere(t, func(_ *testing.T, _ redis.UniversalClient, s site) {
		s.has(s.run(0, "", "paused"), "no destination is paused")
		s.has(s.acts(2, "", "pause", "bank"), "--reason")
		s.has(s.acts(2, "", "pause", "bank", "shop", "--reason", "x"), "give exactly one destination")
		s.has(s.acts(2, "", "pause", "bank", "--reason", "x", "--for", "-1s"), "--for")
		s.has(s.acts(0, "", "pause", "bank", "--reason", "they\x1bmove", "--yes"), "bank 2", " - alice they·move")
		s.has(s.acts(0, "", "pause", "shop", "--reason", "lunch", "--for", "1h", "--json", "--yes"), `"destination":"shop"`, `"until":"2`, `"why":"lunch"`)
		s.has(s.run(0, "", "stats", "--over", "0"), "paused:", "bank 2", "shop 2")
		s.has(s.run(0, "", "stats", "--over", "0", "--json"), `"paused":[{"destination":"bank"`)
		s.has(s.acts(0, "", "resume", "bank", "--yes"), "RESUMED bank")
		s.has(s.acts(1, "", "resume", "bank", "--yes"), "not paused")
		s.has(s.acts(2, "", "resume"), "one destination")
		s.has(s.run(0, "", "audit"), "alice pause", "alice resume")
	})
}
