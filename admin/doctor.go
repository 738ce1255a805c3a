package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Severity is the severity of a Diagnosis.
type Severity string

// The severities.
const (
	// Failing means that luatx does not work, or breaks a guarantee.
	Failing Severity = "error"
	// Risky means that luatx works until a fault happens.
	Risky Severity = "warning"
	// Remark is information. A sound server may have some.
	Remark Severity = "note"
)

// Diagnosis is a finding of Examine.
type Diagnosis struct {
	// Check is the stable name of the check, such as version, eviction or persistence.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Node is the server's address. It is empty if the finding concerns no single server.
	Node string `json:"node"`
	// Text describes the finding, and Remedy the action to take.
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
}

// String returns the diagnosis as one line of text.
func (d Diagnosis) String() string {
	text := string(d.Severity) + " " + d.Check
	if d.Node != "" {
		text += " at " + d.Node
	}
	return text + ": " + d.Text + "; " + d.Remedy
}

// Examination configures Examine. Its zero value works.
type Examination struct {
	// Role is the role whose rights the current user must have. Defaults to RoleApplication.
	Role Role
	// NoShards skips the keys of the shards. With luatx.OwnTags there are 24 keys for each of 16,384 slots.
	NoShards bool

	now func() time.Time // this process's clock
}

// Examine checks every node, the rights of the current user, and the shards. It returns the worst findings first. If the user
// may not ask a server for something, the finding is a Remark. The error reports that the examination itself failed.
func (o *Operator) Examine(ctx context.Context, how Examination) ([]Diagnosis, error) {
	how.Role = cmp.Or(how.Role, RoleApplication)
	if how.now == nil {
		how.now = time.Now
	}
	if _, err := aclOf(how.Role, 7, 4); err != nil {
		return nil, err
	}
	d := &doctor{operator: o, how: how}
	if err := o.eachNode(ctx, d.node); err != nil {
		return nil, fmt.Errorf("admin: examine: %w", err)
	}
	d.clocks()
	if err := d.keyspace(ctx); err != nil {
		return nil, fmt.Errorf("admin: examine: %w", err)
	}
	order := []Severity{Failing, Risky, Remark}
	slices.SortStableFunc(d.found, func(a, b Diagnosis) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity)), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Node, b.Node))
	})
	return d.found, nil
}

// keyspace runs the checks that need a working server.
func (d *doctor) keyspace(ctx context.Context) error {
	unfit := func(found Diagnosis) bool {
		return slices.Contains([]string{"cluster", "role", "version"}, found.Check)
	}
	if slices.ContainsFunc(d.found, unfit) {
		return nil
	}
	d.scriptCache(ctx)
	if err := d.rights(ctx); err != nil || d.how.NoShards {
		return err
	}
	return d.shards(ctx)
}

type doctor struct {
	operator *Operator
	how      Examination

	mu      sync.Mutex
	found   []Diagnosis
	offsets map[string]time.Duration // of the nodes' clocks
	version [2]int                   // the lowest
}

func (d *doctor) add(check string, severity Severity, node, text, remedy string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, Diagnosis{check, severity, node, text, remedy})
}

// eachNode calls look for each node, including the replicas of a cluster.
func (o *Operator) eachNode(ctx context.Context, look func(ctx context.Context, node redis.Cmdable, addr string) error) error {
	switch c := o.core.Client.(type) {
	case *redis.ClusterClient:
		return c.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error { return look(ctx, node, node.Options().Addr) })
	case *redis.Client:
		return look(ctx, c, c.Options().Addr)
	}
	return look(ctx, o.core.Client, "")
}

// node examines one server.
func (d *doctor) node(ctx context.Context, node redis.Cmdable, addr string) error {
	before := d.how.now()
	at, err := node.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	after := d.how.now()
	d.mu.Lock()
	if d.offsets == nil {
		d.offsets = map[string]time.Duration{}
	}
	d.offsets[addr] = clockOffset(at, before, after)
	d.mu.Unlock()

	text, err := node.Info(ctx).Result()
	if err != nil {
		return d.denied("INFO", addr, err)
	}
	info := parseInfo(text)
	config, err := d.configuration(ctx, node, addr)
	if err != nil {
		return err
	}
	d.server(addr, info, config)
	if info["cluster_enabled"] == "1" {
		return d.cluster(ctx, node, addr)
	}
	return nil
}

// configuration returns the settings that INFO does not report, or nil if the user may not run CONFIG GET. It asks for
// one at a time, because servers before 7.0 accept one name.
func (d *doctor) configuration(ctx context.Context, node redis.Cmdable, addr string) (map[string]string, error) {
	settings := map[string]string{}
	for _, name := range []string{"appendfsync", "save"} {
		values, err := node.ConfigGet(ctx, name).Result()
		if err != nil {
			if _, answered := errors.AsType[redis.Error](err); !answered {
				return nil, fmt.Errorf("%s: CONFIG GET: %w", addr, err)
			}
			d.add("denied", Remark, addr, "CONFIG GET is denied, so that appendfsync and save are unknown: "+err.Error(),
				"check both settings by hand; with the right to run CONFIG GET, the user could read the server's passwords")
			return nil, nil
		}
		settings[name] = values[name]
	}
	return settings, nil
}

// denied adds a remark if the user may not ask for something. It returns an error if the server does not reply.
func (d *doctor) denied(command, addr string, err error) error {
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return fmt.Errorf("%s: %s: %w", addr, command, err)
	}
	d.add("denied", Remark, addr, command+" is denied: "+err.Error(), "check by hand what it would report, or grant it to the user of this connection")
	return nil
}

func (d *doctor) cluster(ctx context.Context, node redis.Cmdable, addr string) error {
	text, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return d.denied("CLUSTER INFO", addr, err)
	}
	info := parseInfo(text)
	if state := info["cluster_state"]; state != "ok" {
		d.add("cluster", Failing, addr, fmt.Sprintf("the state of the cluster is %q: it serves %s of 16384 slots", state, cmp.Or(info["cluster_slots_ok"], "0")),
			"restart the failed nodes, or assign the missing slots (redis-cli --cluster fix)")
	}
	return nil
}

// A difference of clocks above maxOffset is a remark. Above seriousOffset it breaks deadlines.
const (
	maxOffset     = time.Second
	seriousOffset = 30 * time.Second
)

// clockOffset returns by how much the clock of a server that replied at differs at least from the clock of this process, which sent the
// request before and got the reply after. The first request of a connection may take seconds.
func clockOffset(at, before, after time.Time) time.Duration {
	switch {
	case at.Before(before):
		return at.Sub(before)
	case at.After(after):
		return at.Sub(after)
	}
	return 0
}

// clocks compares the clocks of the nodes with the clock of this process, and thereby with each other.
func (d *doctor) clocks() {
	for addr, offset := range d.offsets {
		severity := Risky
		if offset.Abs() > seriousOffset {
			severity = Failing
		}
		if offset.Abs() > maxOffset {
			d.add("clock", severity, addr, fmt.Sprintf("the server's clock differs by at least %v from the clock of this machine", offset.Round(time.Millisecond)),
				"synchronize the clocks (NTP): leases, schedules and the inbox use the server's clock, and a failover changes the server")
		}
	}
}

// parseInfo reads a reply to INFO.
func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
