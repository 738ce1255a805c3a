package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	keysPerMove = 100
	// failoverTimeout is how long a replica tries to take over in agreement, and a little.
	failoverTimeout = 6 * time.Second
)

// NodeForSlot returns the running master that serves the slot by its own account; of several the one elected last.
func (c *Cluster3) NodeForSlot(ctx context.Context, slot int) (*Server, error) {
	var best *Server
	var epoch int64
	var errs []error
	for _, node := range c.nodes {
		if node.Pid() == 0 {
			continue
		}
		self, err := node.myself(ctx)
		if err != nil { // paused, for example
			errs = append(errs, err)
			continue
		}
		if self.has("master") && self.owns(slot) && (best == nil || self.epoch > epoch) {
			best, epoch = node, self.epoch
		}
	}
	if best == nil {
		return nil, errors.Join(append(errs, fmt.Errorf("no node serves slot %d", slot))...)
	}
	return best, nil
}

// Masters returns the masters that serve slots, in no particular order.
func (c *Cluster3) Masters(ctx context.Context) ([]*Server, error) {
	return c.inRole(ctx, "master", "")
}

// ReplicaOf returns a running replica of the master.
func (c *Cluster3) ReplicaOf(ctx context.Context, master *Server) (*Server, error) {
	self, err := master.myself(ctx)
	if err != nil {
		return nil, err
	}
	replicas, err := c.inRole(ctx, "slave", self.id)
	if err == nil && len(replicas) == 0 {
		err = fmt.Errorf("%s has no replica", master.addr)
	}
	if err != nil {
		return nil, err
	}
	return replicas[0], nil
}

// inRole returns the running nodes with the flag, of one master where that is given.
func (c *Cluster3) inRole(ctx context.Context, flag, master string) ([]*Server, error) {
	var nodes []*Server
	for _, node := range c.nodes {
		if node.Pid() == 0 {
			continue
		}
		self, err := node.myself(ctx)
		if err != nil {
			return nil, err
		}
		if self.has(flag) && (master == "" || self.master == master) {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// Failover makes a replica of the slot's master take over, in agreement with it, and returns the new master.
func (c *Cluster3) Failover(ctx context.Context, slot int) (*Server, error) {
	master, err := c.NodeForSlot(ctx, slot)
	if err != nil {
		return nil, err
	}
	replica, err := c.ReplicaOf(ctx, master)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for { // it fails where the others have voted for a replica of this master within two node timeouts
		if err := replica.do(ctx, "CLUSTER", "FAILOVER").Err(); err != nil {
			return nil, err
		}
		attempt, cancel := context.WithTimeout(ctx, failoverTimeout)
		_, err := c.newMaster(attempt, slot, master)
		cancel()
		if err == nil {
			return c.WaitMaster(ctx, slot, master)
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// WaitMaster waits until another node than the one given serves the slot and all running nodes agree, and returns it.
func (c *Cluster3) WaitMaster(ctx context.Context, slot int, not *Server) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	master, err := c.newMaster(ctx, slot, not)
	if err != nil {
		return nil, err
	}
	return master, c.WaitReady(ctx)
}

func (c *Cluster3) newMaster(ctx context.Context, slot int, not *Server) (master *Server, err error) {
	err = poll(ctx, 10*pollEvery, func() error {
		if master, err = c.NodeForSlot(ctx, slot); err == nil && master == not {
			err = fmt.Errorf("%s still serves slot %d", not.addr, slot)
		}
		return err
	})
	return master, err
}

// Migration is a slot on its way from one master to another.
type Migration struct {
	Slot     int
	From, To *Server

	cluster      *Cluster3
	fromID, toID string
}

// BeginMigration opens the slot on both masters: migrating on the one that serves it, importing on the other.
func (c *Cluster3) BeginMigration(ctx context.Context, slot int, to *Server) (*Migration, error) {
	from, err := c.NodeForSlot(ctx, slot)
	if err != nil {
		return nil, err
	}
	m := &Migration{Slot: slot, From: from, To: to, cluster: c}
	for node, id := range map[*Server]*string{from: &m.fromID, to: &m.toID} {
		if *id, err = node.do(ctx, "CLUSTER", "MYID").Text(); err != nil {
			return nil, err
		}
	}
	if from == to {
		return nil, fmt.Errorf("slot %d is already served by %s", slot, to.addr)
	}
	if err := to.do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", m.fromID).Err(); err != nil {
		return nil, err
	}
	return m, from.do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", m.toID).Err()
}

// MoveKeys moves keys of the slot; keys that do not exist are passed over.
func (m *Migration) MoveKeys(ctx context.Context, keys ...string) error {
	args := []any{"MIGRATE", "127.0.0.1", m.To.port, "", 0, int(5 * time.Second / time.Millisecond), "KEYS"}
	for _, key := range keys {
		args = append(args, key)
	}
	return m.From.do(ctx, args...).Err()
}

// Finish moves the keys that are left and hands the slot over.
func (m *Migration) Finish(ctx context.Context) error {
	for {
		keys, err := m.From.do(ctx, "CLUSTER", "GETKEYSINSLOT", m.Slot, keysPerMove).StringSlice()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			return m.handOver(ctx)
		}
		if err := m.MoveKeys(ctx, keys...); err != nil {
			return err
		}
	}
}

// handOver tells the new owner first: between the two no node may believe the slot to be nobody's. Then it waits until replicas
// know it, because one of them may become the master at once.
func (m *Migration) handOver(ctx context.Context) error {
	others, err := m.cluster.Masters(ctx)
	if err != nil {
		return err
	}
	for _, node := range append([]*Server{m.To, m.From}, others...) {
		if err := node.do(ctx, "CLUSTER", "SETSLOT", m.Slot, "NODE", m.toID).Err(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return m.cluster.eachNode(ctx, m.isKnown)
}

func (m *Migration) isKnown(ctx context.Context, node *Server) error {
	view, err := node.view(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(view, func(p peer) bool { return p.id == m.toID && p.owns(m.Slot) }) {
		return fmt.Errorf("%s does not know that %s serves slot %d", node.addr, m.To.addr, m.Slot)
	}
	return nil
}

// MigrateSlot moves a slot with all its keys.
func (c *Cluster3) MigrateSlot(ctx context.Context, slot int, to *Server) error {
	m, err := c.BeginMigration(ctx, slot, to)
	if err != nil {
		return err
	}
	return m.Finish(ctx)
}
