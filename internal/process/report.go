package process

import (
	"cmp"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// The kinds of processes.
const (
	Relay    = "relay"
	Consumer = "consumer"
	Trigger  = "trigger"
	Timers   = "timers"
	Repair   = "repair"
)

// A Report describes a process. Each of its heartbeats contains one.
type Report struct {
	// Stream, Group and Consumer are set for a process that reads a stream.
	Stream   string `json:"stream,omitempty"`
	Group    string `json:"group,omitempty"`
	Consumer string `json:"consumer,omitempty"`
	// InFlight is the number of messages or events that the process works on.
	InFlight int64 `json:"in_flight,omitempty"`
	// Holding is the number of partitions that a consumer holds. Partitions contains the keys of the first
	// MaxPartitions of them.
	Holding    int      `json:"holding,omitempty"`
	Partitions []string `json:"partitions,omitempty"`
	// Leases contains the leases of a relay on events: the oldest ones, at most MaxLeases.
	Leases []Lease `json:"leases,omitempty"`
	// Counts contains the number of each of the process's actions since it began. Its keys are single words.
	Counts map[string]int64 `json:"counts,omitempty"`
	// Trigger is set for a trigger.
	Trigger *TriggerReport `json:"trigger,omitempty"`
}

// A Lease is the claim of a relay on events of a slot.
type Lease struct {
	Slot int `json:"slot"`
	// Lease is the identity of the claim, as outbox.Event.Lease.
	Lease string `json:"lease"`
	// Events is the number of events that are not settled yet.
	Events int `json:"events"`
	// Since is the time at which the lease began, by the relay's clock.
	Since time.Time `json:"since"`
}

// TriggerReport is the state of a trigger.
type TriggerReport struct {
	Function  string `json:"function"`
	Transport string `json:"transport"`
	State     string `json:"state"`
	// Since is the time at which the state began, by the trigger's clock.
	Since   time.Time `json:"since,omitzero"`
	Ready   bool      `json:"ready"`
	Stalled bool      `json:"stalled"`
	// Lag is the number of entries of a stream that were not delivered yet, or -1 if it is unknown. It is 0 for
	// channels.
	Lag int64 `json:"lag"`
	// Retrying is the number of failed entries that wait for a retry.
	Retrying int64 `json:"retrying"`
	// OldestUnacked is the age of the oldest delivery that is not acknowledged, in nanoseconds in JSON.
	OldestUnacked time.Duration `json:"oldest_unacked_ns"`
	LastError     string        `json:"last_error,omitempty"`
	LastErrorAt   time.Time     `json:"last_error_at,omitzero"`
}

const (
	// MaxPartitions is the maximum number of partition keys in a Report.
	MaxPartitions = 256
	// MaxLeases is the maximum number of leases in a Report.
	MaxLeases = 64
	// MaxError is the maximum size of the text of an error in a Report, in bytes.
	MaxError = 512
)

// record is the data that the list stores for a process.
type record struct {
	Kind    string `json:"kind"`
	Version string `json:"version"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Report
}

// host returns the name of this machine.
func host() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

const module = "github.com/luatx/luatx"

// version returns the version of luatx in this program.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if strings.HasPrefix(info.Main.Path, module) {
		return cmp.Or(info.Main.Version, "(devel)")
	}
	for _, dep := range info.Deps {
		if dep.Path == module && dep.Replace != nil {
			dep = dep.Replace
			return cmp.Or(dep.Version, "(devel)")
		}
		if dep.Path == module {
			return dep.Version
		}
	}
	return "unknown"
})
