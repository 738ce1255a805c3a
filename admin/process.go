package admin

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/outbox"
)

// Process is a running relay, consumer, trigger or worker, as it last described itself.
type Process struct {
	ID string `json:"id"`
	// Kind is relay, consumer (of a stream), trigger, timers (a worker of package expiry) or repair.
	Kind string `json:"kind"`
	// Dead reports that it has sent no heartbeat for 30 seconds, and has not stopped by itself.
	Dead bool `json:"dead"`
	// Version is that of luatx in its program.
	Version string `json:"version"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	// Since is when it registered, and Seen when it sent its last heartbeat, by the server's clock.
	Since time.Time `json:"since"`
	Seen  time.Time `json:"seen"`
	// Stream and Group are of a consumer or a trigger, and Consumer is the name of a consumer in its group.
	Stream   string `json:"stream,omitempty"`
	Group    string `json:"group,omitempty"`
	Consumer string `json:"consumer,omitempty"`
	// InFlight is the number of events that the publisher of a relay has, of messages or deliveries that handlers have, or of
	// rounds of repair.
	InFlight int64 `json:"in_flight"`
	// Holding is the number of partitions that a consumer holds, and Partitions has the keys of their streams, at most 256.
	Holding    int      `json:"holding"`
	Partitions []string `json:"partitions,omitempty"`
	// Leases are those of a relay on events: the oldest, at most 64.
	Leases []Lease `json:"leases,omitempty"`
	// Counts counts what the process has done since it began, by a word such as sent or delivered.
	Counts map[string]int64 `json:"counts,omitempty"`
	// Trigger is the state of a trigger, or nil.
	Trigger *TriggerStatus `json:"trigger,omitempty"`
}

// Lease is a claim of a relay on events.
type Lease = process.Lease

// TriggerStatus is the state that a trigger reports: see trigger.Health and trigger.Stats.
type TriggerStatus = process.TriggerReport

// ProcessKinds lists the kinds of processes.
func ProcessKinds() []string {
	return []string{process.Relay, process.Consumer, process.Trigger, process.Timers, process.Repair}
}

// Processes lists the running processes of the namespace by kind and host: all, or those of some kinds. A process that died is
// listed as dead for an hour, and one that stopped by itself is not listed. The list has the processes of every
// keyspace of the namespace, and no process whose registration is switched off. A report that cannot be read comes with its
// error, and the list continues.
func (o *Operator) Processes(ctx context.Context, kinds ...string) iter.Seq2[Process, error] {
	return func(yield func(Process, error) bool) {
		for _, kind := range kinds {
			if !slices.Contains(ProcessKinds(), kind) {
				yield(Process{}, fmt.Errorf("admin: processes: kind %q does not exist; use %s", kind, strings.Join(ProcessKinds(), ", ")))
				return
			}
		}
		for e, err := range o.core.Processes.All(ctx, kinds...) {
			if err != nil {
				err = fmt.Errorf("admin: processes: %w", err)
			}
			if !yield(newProcess(e), err) {
				return
			}
		}
	}
}

func newProcess(e process.Entry) Process {
	return Process{
		ID: e.ID, Kind: e.Kind, Dead: e.Dead, Version: e.Version, Host: e.Host, PID: e.PID, Since: e.Since, Seen: e.Seen,
		Stream: e.Stream, Group: e.Group, Consumer: e.Consumer, InFlight: e.InFlight, Holding: e.Holding, Partitions: e.Partitions,
		Leases: e.Leases, Counts: e.Counts, Trigger: e.Trigger,
	}
}

// WorksOn names what the process works on: the function of a trigger, or a stream and its group.
func (p Process) WorksOn() string {
	switch {
	case p.Trigger != nil:
		return p.Trigger.Function
	case p.Group != "":
		return p.Stream + " " + p.Group
	}
	return p.Stream
}

// Holder returns the relay that holds the lease of an event. It returns false if no relay has reported the lease. Relays report
// every 10 seconds, so a lease is unknown in the first seconds.
func (o *Operator) Holder(ctx context.Context, e outbox.Event) (Process, bool, error) {
	if e.State != outbox.Leased {
		return Process{}, false, nil
	}
	for p, err := range o.Processes(ctx, process.Relay) {
		if err != nil {
			return Process{}, false, err
		}
		if slices.ContainsFunc(p.Leases, func(l Lease) bool { return l.Slot == e.Slot && l.Lease == e.Lease }) {
			return p, true, nil
		}
	}
	return Process{}, false, nil
}
