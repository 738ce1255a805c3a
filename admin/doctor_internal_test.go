package admin

import (
	"strings"
	"testing"
	"time"
)

func checks(d *doctor) string {
	var all []string
	for _, found := range d.found {
		all = append(all, string(found.Severity)+" "+found.Check)
	}
	return strings.Join(all, ", ")
}

func TestDoctorReportsOldReleasesAndFlawsOfTheScriptingEngine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ redis, valkey, want string }{
		{"5.0.14", "", "error version"},
		{"6.0.16", "", "warning cve, note cve"},
		{"6.2.19", "", "warning cve"},
		{"6.2.20", "", ""},
		{"7.0.11", "", "warning cve, note cve"},
		{"7.0.15", "", "note cve"},
		{"7.2.11", "", ""},
		{"7.4.5", "", "warning cve"},
		{"8.0.3", "", "warning cve"},
		{"8.2.2", "", ""},
		{"8.4.0", "", ""},
		{"10.0.0", "", ""},
		{"7.2.4", "8.1.3", "warning cve"},
		{"7.2.4", "8.1.4", ""},
		{"7.2.4", "9.0.0", ""},
		{"", "", "error version"},
	} {
		var d doctor
		info := map[string]string{"redis_version": c.redis}
		if c.valkey != "" {
			info["valkey_version"] = c.valkey
		}
		if d.release("a", info); checks(&d) != c.want {
			t.Errorf("%s %s: %q, want %q", c.redis, c.valkey, checks(&d), c.want)
		}
	}
}

func TestDoctorReportsClocksThatDifferByMoreThanASecond(t *testing.T) {
	t.Parallel()
	for offset, want := range map[time.Duration]string{
		0: "", time.Second: "", -900 * time.Millisecond: "", 2 * time.Second: "warning clock", -2 * time.Second: "warning clock", -time.Minute: "error clock",
	} {
		d := doctor{offsets: map[string]time.Duration{"a": offset}}
		if d.clocks(); checks(&d) != want {
			t.Errorf("%v: %q, want %q", offset, checks(&d), want)
		}
	}
}

func TestDoctorReportsFailedWritesAndManyScripts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		info map[string]string
		want string
	}{
		"a full disk":       {map[string]string{"aof_last_write_status": "err"}, "error disk"},
		"a failed snapshot": {map[string]string{"rdb_last_bgsave_status": "err"}, "error disk"},
		"many scripts":      {map[string]string{"number_of_cached_scripts": "1001"}, "warning scripts"},
		"some scripts":      {map[string]string{"number_of_cached_scripts": "1000"}, ""},
	} {
		c.info["redis_version"], c.info["connected_slaves"], c.info["min_slaves_good_slaves"] = "8.4.0", "1", "1"
		var d doctor
		if d.server("a", c.info, nil); checks(&d) != c.want {
			t.Errorf("%s: %q, want %q", name, checks(&d), c.want)
		}
	}
}

func TestOffsetOfAClockIsWhatTheTimeOfTheRequestDoesNotExplain(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	for _, c := range []struct{ sent, received, want time.Duration }{
		{-5 * time.Second, 0, 0}, // the server replied at the end of a slow connect
		{0, 5 * time.Second, 0},
		{-10 * time.Second, -5 * time.Second, 5 * time.Second},
		{5 * time.Second, 10 * time.Second, -5 * time.Second},
		{2 * time.Second, 2 * time.Second, -2 * time.Second},
	} {
		if got := clockOffset(at, at.Add(c.sent), at.Add(c.received)); got != c.want {
			t.Errorf("sent at %v and received at %v: %v, want %v", c.sent, c.received, got, c.want)
		}
	}
}
