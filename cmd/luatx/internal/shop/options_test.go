package shop

import (
	"flag"
	"io"
	"strings"
	"testing"
	"time"
)

func parseOptions(args ...string) (Options, error) {
	var o Options
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	o.Register(fs)
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	return o, o.Validate()
}

func TestOptionsHaveDefaultsAndFollowFlags(t *testing.T) {
	t.Parallel()
	o, err := parseOptions()
	if want := (Options{Seed: 1, Mode: Both, Workers: 4, KillEvery: 25, Work: 2 * time.Millisecond}); err != nil || o != want {
		t.Errorf("defaults are %+v, %v", o, err)
	}
	o, err = parseOptions("--orders", "-", "--seed", "7", "--redis", "a:1,b:2", "--mode", "scripted", "--workers", "2",
		"--rate", "70", "--kill-every", "0", "--work", "0", "--keep", "--json")
	want := Options{Orders: "-", Seed: 7, Redis: "a:1,b:2", Mode: Scripted, Workers: 2, Rate: 70, Keep: true, JSON: true}
	if err != nil || o != want {
		t.Errorf("options are %+v, %v", o, err)
	}
}

func TestInvalidOptionsAreErrorsThatNameThem(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--mode=fast": "--mode", "--workers=0": "--workers", "--workers=65": "--workers", "--rate=-1": "--rate",
		"--kill-every=-1": "--kill-every", "--work=-1ms": "--work", "--work=2m": "--work",
	} {
		if _, err := parseOptions(arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	_, err := parseOptions("--workers=0", "--rate=-1")
	if err == nil || !strings.Contains(err.Error(), "--workers") || !strings.Contains(err.Error(), "--rate") {
		t.Errorf("two bad options: %v", err)
	}
}
