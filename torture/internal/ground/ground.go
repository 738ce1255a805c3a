// Package ground is what all processes of a run agree on: branches and their keys, the bank's accounts, the servers.
package ground

import (
	"cmp"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/slot"
)

const (
	partitions = 6
	steppers   = 3 // of each branch
	// Accounts is how many there are in each branch.
	Accounts = 10
	// Products is how many there are in each branch.
	Products = 5
	// Opening is what every account holds at first.
	Opening = 1000
	// Group is the consumer group of all input streams.
	Group = "torture"
	// StepStream is the partitioned stream of steps, which are handled in order and whose inbox is one position for each branch.
	StepStream = "steps"
	// CellTime is for how long calls go to one cell: what happens there is checked for linearizability as a whole.
	CellTime = time.Second
)

// Timing of the workers: what one leaves behind is taken over in little more than a second.
const (
	Lease   = time.Second
	MaxIdle = time.Second
	// CommitTimeout bounds every commit.
	CommitTimeout = 5 * time.Second
	// Retention is how long ids are known at least: the generations of the inbox turn over while things break.
	Retention = 10 * CommitTimeout
)

// Branch is a branch of the bank with the shop beside it: everything in it shares a slot.
type Branch struct {
	N    int
	Name string // an aggregate
	Tag  string
	Slot int
	// Steppers are the aggregates of the steps: they share a position, and commit in batches.
	Steppers []string

	// The keys of hashes.
	Balances  string // what the accounts hold
	Effects   string // what each applied id did
	Times     string // how often each id was applied
	Sums      string // in and out, the money from and to other branches, and count, the number of effects
	Lanes     string // the last place that was taken in each lane
	Stock     string // the units that each product has left
	Ticked    string // how often each tick was applied
	Signalled string // how often each signal was applied

	Stepped string // the key of a list: the ids of the steps, as they were applied

	// The keys of streams.
	Orders  string // orders, and money that others have sent
	Ticks   string // inputs that no inbox knows
	Signals string // inputs that triggers read
	Steps   string // the branch's partition of the stream of steps, whose inbox is one position

	Void string // a key that never exists: a script that names it waits while its slot migrates

	space luatx.Keyspace
}

// Key returns a key of the branch.
func (b Branch) Key(parts ...string) string { return b.space.TagKey(b.Tag, parts...) }

// Cell is the hash of the accounts that calls of one second go to.
func (b Branch) Cell(epoch int64) string { return b.Key("cell", strconv.FormatInt(epoch, 10)) }

// Done is the hash of the calls that are in a cell.
func (b Branch) Done(epoch int64) string { return b.Key("cell", strconv.FormatInt(epoch, 10), "done") }

// Doomed are keys that only transactions write which must fail: text is a string that is no number.
func (b Branch) Doomed() (text, list, set, zset, stream, fresh string) {
	return b.Key("doomed", "text"), b.Key("doomed", "list"), b.Key("doomed", "set"), b.Key("doomed", "zset"),
		b.Key("doomed", "stream"), b.Key("doomed", "fresh")
}

// Account names an account.
func Account(n int) string { return fmt.Sprintf("a%d", n) }

// Plan is what every process of a run is told.
type Plan struct {
	Namespace string            `json:"namespace"`
	Addrs     []string          `json:"addrs"`
	Cluster   bool              `json:"cluster"`
	Routes    map[string]string `json:"routes"` // from a node's address to the proxy before it
	Broker    string            `json:"broker"` // address of the server that takes what is published
	Wait      int               `json:"wait"`   // replicas that commits and publishes wait for
}

// Published is the broker's stream of everything that was published.
func (p Plan) Published() string { return p.Namespace + ":published" }

// Refused is the broker's set of events that it has turned away for good, once.
func (p Plan) Refused() string { return p.Namespace + ":refused" }

// Failed is the broker's set of events that it has turned away for now, once.
func (p Plan) Failed() string { return p.Namespace + ":failed" }

// Space is the keyspace of the run.
func (p Plan) Space() luatx.Keyspace {
	return luatx.Partitions(partitions).WithPrefix(p.Namespace + "-bank")
}

// Branches are all branches, by number.
func (p Plan) Branches() ([]Branch, error) {
	space := p.Space()
	branches := make([]Branch, 0, partitions)
	for _, tag := range space.Tags() {
		key := func(parts ...string) string { return space.TagKey(tag, parts...) }
		b := Branch{
			N: len(branches), Tag: tag, Slot: slot.OfTag(tag), space: space,
			Balances: key("balances"), Effects: key("effects"), Times: key("times"), Sums: key("sums"), Lanes: key("lanes"), Stock: key("stock"),
			Ticked: key("ticked"), Signalled: key("signalled"), Stepped: key("stepped"), Void: key("void"),
			Orders: key("stream", "orders"), Ticks: key("stream", "ticks"), Signals: key("stream", "signals"),
			Steps: key(StepStream),
		}
		for i := 0; len(b.Steppers) < steppers; i++ {
			name := fmt.Sprintf("branch-%d", i)
			at, err := space.Tag(name)
			if err != nil {
				return nil, err
			}
			if at == tag {
				b.Name = cmp.Or(b.Name, name)
				b.Steppers = append(b.Steppers, name)
			}
		}
		branches = append(branches, b)
	}
	return branches, nil
}

// Transactor is the configuration of every transactor of the run.
func (p Plan) Transactor(log *slog.Logger) luatx.Config {
	cfg := luatx.Config{
		Namespace: p.Namespace, Keyspace: p.Space(), CommitTimeout: CommitTimeout, Retention: Retention, Procedures: procedures, Logger: log,
	}
	if p.Wait > 0 {
		cfg.Durability = luatx.Durability{Replicas: p.Wait, Timeout: 300 * time.Millisecond}
	}
	return cfg
}
