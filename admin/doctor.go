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

// Severity is how much a Diagnosis matters.
type Severity string

// The severities.
const (
	// Failing: luatx does not work, or loses what it has promised.
	Failing Severity = "error"
	// Risky: it works until something happens.
	Risky Severity = "warning"
	// Remark: to be known; on a sound server there may be some.
	Remark Severity = "note"
)

// Diagnosis is what the doctor has found.
type Diagnosis struct {
	// Check is its stable name: version, eviction, persistence …
	Check    string
	Severity Severity
	// Node is the server's address; empty where it is about none alone.
	Node string
	// Text says what is found, Remedy what to do about it.
	Text, Remedy string
}

// String returns a line for people.
func (d Diagnosis) String() string {
	text := string(d.Severity) + " " + d.Check
	if d.Node != "" {
		text += " at " + d.Node
	}
	return text + ": " + d.Text + ": " + d.Remedy
}

// Examination says what Examine looks for.
type Examination struct {
	// Role is whose rights the current user needs. Defaults to RoleApplication.
	Role Role
	// NoShards leaves the keys of the shards alone, of which own tags have 16,384 times 24.
	NoShards bool

	now func() time.Time // this process's clock
}

// Examine looks at every node, at the rights of the current user, and at the shards: what is wrong, worst first. What a
// server denies to be asked is a Remark. The error is one of the examination itself.
func (o *Operator) Examine(ctx context.Context, how Examination) ([]Diagnosis, error) {
	how.Role = cmp.Or(how.Role, RoleApplication)
	if how.now == nil {
		how.now = time.Now
	}
	if _, err := ACL(how.Role, 7, 4); err != nil {
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

// keyspace examines what needs a server that works.
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

// eachNode calls look for each node: masters and replicas of a cluster.
func (o *Operator) eachNode(ctx context.Context, look func(ctx context.Context, node redis.Cmdable, addr string) error) error {
	switch c := o.cfg.Client.(type) {
	case *redis.ClusterClient:
		return c.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error { return look(ctx, node, node.Options().Addr) })
	case *redis.Client:
		return look(ctx, c, c.Options().Addr)
	}
	return look(ctx, o.cfg.Client, "")
}

// node examines one server.
func (d *doctor) node(ctx context.Context, node redis.Cmdable, addr string) error {
	before := d.how.now()
	at, err := node.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	middle := before.Add(d.how.now().Sub(before) / 2)
	d.mu.Lock()
	if d.offsets == nil {
		d.offsets = map[string]time.Duration{}
	}
	d.offsets[addr] = at.Sub(middle)
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
			d.add("denied", Remark, addr, "appendfsync and save are not readable: CONFIG GET is denied: "+err.Error(),
				"check both settings yourself; a user who may run CONFIG GET can read the server's passwords")
			return nil, nil
		}
		settings[name] = values[name]
	}
	return settings, nil
}

// denied makes a remark of what a server will not tell; one that does not answer is an error.
func (d *doctor) denied(command, addr string, err error) error {
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return fmt.Errorf("%s: %s: %w", addr, command, err)
	}
	d.add("denied", Remark, addr, command+" is denied: "+err.Error(), "see to what it would tell by yourself, or grant it to who runs this")
	return nil
}

func (d *doctor) cluster(ctx context.Context, node redis.Cmdable, addr string) error {
	text, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return d.denied("CLUSTER INFO", addr, err)
	}
	info := parseInfo(text)
	if state := info["cluster_state"]; state != "ok" {
		d.add("cluster", Failing, addr, fmt.Sprintf("the cluster's state is %q: %s of 16384 slots are served", state, cmp.Or(info["cluster_slots_ok"], "0")),
			"assign the slots that are missing (redis-cli --cluster fix), or bring the nodes back")
	}
	return nil
}

// maxOffset is how far clocks may be apart before it is worth a word; seriousOffset by how much they break deadlines.
const (
	maxOffset     = time.Second
	seriousOffset = 30 * time.Second
)

// clocks compares the nodes' clocks with this one's, and so with each other.
func (d *doctor) clocks() {
	for addr, offset := range d.offsets {
		severity := Risky
		if offset.Abs() > seriousOffset {
			severity = Failing
		}
		if offset.Abs() > maxOffset {
			d.add("clock", severity, addr, fmt.Sprintf("its clock differs by %v from this machine's", offset.Round(time.Millisecond)),
				"synchronize the clocks (NTP): leases, schedules and the inbox go by the server's, and follow it to another server at a failover")
		}
	}
}

// parseInfo reads what INFO says.
func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
