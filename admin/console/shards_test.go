package console

import "testing"

func TestShardIsAsFullAsItsFullestLimit(t *testing.T) {
	t.Parallel()
	f := fullness{Events: 50, Parked: 85, Bytes: 10}
	f.measure("events", f.Events, 100)
	f.measure("bytes", f.Bytes, 0)
	f.measure("parked", f.Parked, 100)
	if f.Percent != 85 || f.Of != "parked" || f.Level != "warn" {
		t.Errorf("fullness after measuring: %+v", f)
	}
	f.measure("bytes", f.Bytes, 10)
	if f.Percent != 100 || f.Of != "bytes" || f.Level != "bad" {
		t.Errorf("fullness after measuring: %+v", f)
	}
}
