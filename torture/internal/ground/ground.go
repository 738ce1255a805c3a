// Package ground is what all processes of a run agree on: branches and their keys, the bank's accounts, the servers.
package ground

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/slot"
)

const (
	partitions = 6
	// Accounts and Products are how many there are in each branch.
	Accounts = 10
	Products = 5
	// Opening is what every account holds at first.
	Opening = 1000
	// Group is the consumer group of all input streams.
	Group = "torture"
	// CellTime is for how long calls go to one cell: what happens there is checked for linearizability as a whole.
	CellTime = time.Second
)

// Timing of the workers: what one leaves behind is taken over in little more than a second.
const (
	Lease   = time.Second
	MaxIdle = time.Second
	// CommitTimeout bounds every commit.
	CommitTimeout = 5 * time.Second
)

// Branch is a branch of the bank with the shop beside it: everything in it shares a slot.
type Branch struct {
	N    int
	Name string // an aggregate
	Tag  string
	Slot int

	space luatx.Keyspace
}

// Key returns a key of the branch.
func (b Branch) Key(parts ...string) string { return b.space.TagKey(b.Tag, parts...) }

// The keys of a branch. Effects holds what each applied id did, Times how often it was applied.
func (b Branch) Balances() string        { return b.Key("balances") }
func (b Branch) Effects() string         { return b.Key("effects") }
func (b Branch) Times() string           { return b.Key("times") }
func (b Branch) Sums() string            { return b.Key("sums") } // in, out: money from and to other branches; count
func (b Branch) Lanes() string           { return b.Key("lanes") }
func (b Branch) Stock() string           { return b.Key("stock") }
func (b Branch) Ticked() string          { return b.Key("ticked") }
func (b Branch) Orders() string          { return b.Key("stream", "orders") }
func (b Branch) Ticks() string           { return b.Key("stream", "ticks") }
func (b Branch) Cell(epoch int64) string { return b.Key("cell", fmt.Sprint(epoch)) }
func (b Branch) Done(epoch int64) string { return b.Key("cell", fmt.Sprint(epoch), "done") }

// Doomed are keys that only transactions write which must fail: text is a string that is no number.
func (b Branch) Doomed() (text, list, set, zset, stream, fresh string) {
	return b.Key("doomed", "text"), b.Key("doomed", "list"), b.Key("doomed", "set"), b.Key("doomed", "zset"),
		b.Key("doomed", "stream"), b.Key("doomed", "fresh")
}

// Void never exists: a script that names it waits while its slot migrates.
func (b Branch) Void() string { return b.Key("void") }

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

// Refused and Failed are the broker's sets of events that it has turned away once.
func (p Plan) Refused() string { return p.Namespace + ":refused" }
func (p Plan) Failed() string  { return p.Namespace + ":failed" }

// Space is the keyspace of the run.
func (p Plan) Space() luatx.Keyspace {
	return luatx.Partitions(partitions).WithPrefix(p.Namespace + "-bank")
}

// Branches are all branches, by number.
func (p Plan) Branches() ([]Branch, error) {
	space := p.Space()
	branches := make([]Branch, 0, partitions)
	for _, tag := range space.Tags() {
		b := Branch{N: len(branches), Tag: tag, Slot: slot.OfTag(tag), space: space}
		for i := 0; b.Name == ""; i++ {
			name := fmt.Sprintf("branch-%d", i)
			at, err := space.Tag(name)
			if err != nil {
				return nil, err
			}
			if at == tag {
				b.Name = name
			}
		}
		branches = append(branches, b)
	}
	return branches, nil
}

// Transactor is the configuration of every transactor of the run.
func (p Plan) Transactor(log *slog.Logger) luatx.Config {
	cfg := luatx.Config{
		Namespace: p.Namespace, Keyspace: p.Space(), CommitTimeout: CommitTimeout, Procedures: procedures, Logger: log,
	}
	if p.Wait > 0 {
		cfg.Durability = luatx.Durability{Replicas: p.Wait, Timeout: 300 * time.Millisecond}
	}
	return cfg
}
