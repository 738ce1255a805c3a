package shop

import (
	"errors"
	"flag"
	"fmt"
	"time"
)

// Mode selects the modes that a run compares.
type Mode string

// The modes: pipeline mode, scripted mode, or one after the other.
const (
	Pipeline Mode = "pipeline"
	Scripted Mode = "scripted"
	Both     Mode = "both"
)

// Options are the demo's flags. [Options.Register] sets their defaults.
type Options struct {
	Orders    string        // file of orders, "-" for standard input, or "" for the built-in ones
	Seed      uint64        // of the built-in orders and of the victims
	Redis     string        // addresses or URL, or "" for an embedded server
	Mode      Mode          // which mode to run
	Workers   int           // number of processes that handle messages
	Rate      int           // messages per second, or 0 for no limit
	KillEvery int           // messages applied between two kills, or 0 for no kills
	Work      time.Duration // extra time of a handler, or 0
	Keep      bool          // keep the keys after the run
	JSON      bool          // print one JSON object instead of a table
}

// Register defines the flags, with their defaults, on a flag set that sets o.
func (o *Options) Register(fs *flag.FlagSet) {
	fs.StringVar(&o.Orders, "orders", "", "`file` of orders, CSV, CSV.gz or JSON lines of CloudEvents; - reads standard input (default: built-in orders)")
	fs.Uint64Var(&o.Seed, "seed", 1, "seed of the built-in orders and of the victims")
	fs.StringVar(&o.Redis, "redis", "", "`address`[,address…] or URL of Redis (default: an embedded server)")
	fs.StringVar((*string)(&o.Mode), "mode", string(Both), "scripted, pipeline or both")
	fs.IntVar(&o.Workers, "workers", 4, "number of worker processes")
	fs.IntVar(&o.Rate, "rate", 0, "messages per second; 0 is as fast as possible")
	fs.IntVar(&o.KillEvery, "kill-every", 25, "kill a worker each time this many messages are processed; 0 kills none")
	fs.DurationVar(&o.Work, "work", 2*time.Millisecond, "time that a handler takes for each message")
	fs.BoolVar(&o.Keep, "keep", false, "keep the keys of the demo in Redis")
	fs.BoolVar(&o.JSON, "json", false, "print one JSON object")
}

// Validate returns an error for every option that is out of range, with the remedy.
func (o *Options) Validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Mode != Pipeline && o.Mode != Scripted && o.Mode != Both,
		"--mode %q is unknown: say scripted, pipeline or both", o.Mode)
	refuse(o.Workers < 1 || o.Workers > 64, "--workers %d: say 1 to 64", o.Workers)
	refuse(o.Rate < 0, "--rate %d is negative: say 0 for as fast as possible", o.Rate)
	refuse(o.KillEvery < 0, "--kill-every %d is negative: say 0 to kill nobody", o.KillEvery)
	refuse(o.Work < 0 || o.Work > time.Minute, "--work %s: say 0 to 1m", o.Work)
	return errors.Join(errs...)
}

// Runs lists the modes to run, pipeline mode first.
func (o *Options) Runs() []Mode {
	if o.Mode == Both {
		return []Mode{Pipeline, Scripted}
	}
	return []Mode{o.Mode}
}
