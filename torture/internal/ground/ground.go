// Package ground holds what all processes of a run share: branches and their keys, the bank's accounts, and the servers.
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
	// Accounts is the number of accounts in each branch.
	Accounts = 10
	// Products is the number of products in each branch.
	Products = 5
	// Opening is the initial balance of every account.
	Opening = 1000
	// Group is the consumer group of all input streams.
	Group = "torture"
	// StepStream is the partitioned stream of steps, which are handled in order and whose inbox is one position for each branch.
	StepStream = "steps"
	// CellTime is how long calls go to the same cell. The calls on a cell are checked for linearizability together.
	CellTime = time.Second
)

// Timing of the workers. When a worker crashes, others take over its work in little more than a second.
const (
	Lease   = time.Second
	MaxIdle = time.Second
	// CommitTimeout bounds every commit.
	CommitTimeout = 5 * time.Second
	// Retention is the minimum time for which ids are remembered. It is short, so that the inbox rotates while faults occur.
	Retention = 10 * CommitTimeout
)

// Branch is a branch of the bank with its shop. All of its keys share a slot.
type Branch struct {
	N    int
	Name string // also its aggregate
	Tag  string
	Slot int
	// Steppers are the aggregates of the steps: they share a position, and commit in batches.
	Steppers []string

	// The keys of hashes.
	Balances  string // balance by account
	Effects   string // effect by applied id
	Times     string // number of times that each id was applied
	Sums      string // in and out, the money from and to other branches, and count, the number of effects
	Lanes     string // last used number by lane
	Stock     string // remaining units by product
	Ticked    string // number of times that each tick was applied
	Signalled string // number of times that each signal was applied

	Stepped string // the key of a list: the ids of the steps, as they were applied

	// The keys of streams.
	Orders  string // orders, and money from other branches
	Ticks   string // inputs without an inbox
	Signals string // inputs of triggers
	Steps   string // the branch's partition of the stream of steps, whose inbox is one position

	Void string // a key that never exists, so that a script with this key waits while its slot migrates

	space luatx.Keyspace
}

// Key returns a key of the branch.
func (b Branch) Key(parts ...string) string { return b.space.TagKey(b.Tag, parts...) }

// Cell returns the key of the hash of accounts to which the calls of one second go.
func (b Branch) Cell(epoch int64) string { return b.Key("cell", strconv.FormatInt(epoch, 10)) }

// Done returns the key of the hash of calls that a cell contains.
func (b Branch) Done(epoch int64) string { return b.Key("cell", strconv.FormatInt(epoch, 10), "done") }

// Doomed returns keys that only transactions write which must fail. The value of text is a string that is not a number.
func (b Branch) Doomed() (text, list, set, zset, stream, fresh string) {
	return b.Key("doomed", "text"), b.Key("doomed", "list"), b.Key("doomed", "set"), b.Key("doomed", "zset"),
		b.Key("doomed", "stream"), b.Key("doomed", "fresh")
}

// Account returns the name of an account.
func Account(n int) string { return fmt.Sprintf("a%d", n) }

// Plan is the shared configuration of all processes of a run.
type Plan struct {
	Namespace string            `json:"namespace"`
	Addrs     []string          `json:"addrs"`
	Cluster   bool              `json:"cluster"`
	Routes    map[string]string `json:"routes"` // from a node's address to the proxy before it
	Broker    string            `json:"broker"` // address of the server to which events are published
	Wait      int               `json:"wait"`   // replicas for which commits and publishes wait
}

// Published returns the key of the broker's stream of all published events.
func (p Plan) Published() string { return p.Namespace + ":published" }

// Refused returns the key of the broker's set of events that it has rejected permanently, once each.
func (p Plan) Refused() string { return p.Namespace + ":refused" }

// Failed returns the key of the broker's set of events that it has rejected temporarily, once each.
func (p Plan) Failed() string { return p.Namespace + ":failed" }

// Space returns the keyspace of the run.
func (p Plan) Space() luatx.Keyspace {
	return luatx.Partitions(partitions).WithPrefix(p.Namespace + "-bank")
}

// Branches returns all branches, ordered by number.
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

// Transactor returns the configuration of every Transactor of the run.
func (p Plan) Transactor(log *slog.Logger) luatx.Config {
	cfg := luatx.Config{
		Namespace: p.Namespace, Keyspace: p.Space(), CommitTimeout: CommitTimeout, Retention: Retention, Procedures: procedures, Logger: log,
	}
	if p.Wait > 0 {
		cfg.Durability = luatx.Durability{Replicas: p.Wait, Timeout: 300 * time.Millisecond}
	}
	return cfg
}
