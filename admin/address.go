package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/shard"
)

// Place is a namespace and a keyspace that some shards were written with.
type Place struct {
	Namespace string `json:"namespace"`
	// Keyspace is partitions=n or own, as the luatx command takes it. It is empty if the user may not read the shard.
	Keyspace string `json:"keyspace"`
	// Layout is the version of the keys, and 0 if the user may not read the shard. Versions of luatx with different layouts reject
	// each other's shards.
	Layout int `json:"layout"`
}

// String returns the place as flags of the luatx command.
func (p Place) String() string {
	text := "--namespace " + p.Namespace
	if p.Keyspace != "" {
		text += " --keyspace " + p.Keyspace
	}
	return text
}

// AddressError reports that no shard was written with the namespace, the keyspace and the layout of the Transactor.
type AddressError struct {
	// Wanted is the place of the Transactor.
	Wanted Place
	// Found lists places that exist: those of the same namespace, or else those of other namespaces, at most 100.
	Found []Place
	// Incomplete is the reason why Found may lack places, or nil if the search saw everything.
	Incomplete error
}

// Error names the places that exist.
func (e *AddressError) Error() string {
	text := fmt.Sprintf("admin: no shard has %s with layout %d", e.Wanted, e.Wanted.Layout)
	if len(e.Found) == 0 {
		text += "; no other namespace was found"
	} else {
		var all []string
		for _, p := range e.Found {
			name := p.String()
			if p.Layout != 0 && p.Layout != e.Wanted.Layout {
				name += fmt.Sprintf(" with layout %d", p.Layout)
			}
			all = append(all, name)
		}
		text += "; found " + strings.Join(all, ", ")
	}
	if e.Incomplete != nil {
		text += "; the search is incomplete: " + e.Incomplete.Error()
	}
	return text
}

// Unwrap returns the reason why the search is incomplete.
func (e *AddressError) Unwrap() error { return e.Incomplete }

// Misplaced reports whether the namespace exists with another keyspace or layout. Otherwise the service may be one that has not
// committed anything yet.
func (e *AddressError) Misplaced() bool {
	return slices.ContainsFunc(e.Found, func(p Place) bool { return p.Namespace == e.Wanted.Namespace })
}

// CheckAddress returns an *AddressError unless some shard was written with the namespace and the keyspace of the Transactor. A
// service that has not committed anything has no shard. If the address is wrong, CheckAddress asks all slots for the namespace, and
// then looks for other namespaces by SCAN: at most a million keys of each master, for at most five seconds. A user of docs/acl.md may
// not run SCAN, so the error then names places of its own namespace alone.
func (o *Operator) CheckAddress(ctx context.Context) error {
	wrong := &AddressError{Wanted: placeOf(o.scripts.Identity())}
	places := map[Place]bool{}
	found, err := o.ownAddress(ctx)
	if err == nil && !found {
		err = o.sameNamespace(ctx, places)
	}
	if found {
		return nil
	}
	var denied error
	if isNoPermission(err) {
		denied, err = fmt.Errorf("the user may not read the keys of the namespace: %w", err), nil
	}
	if err == nil && len(places) == 0 {
		var stopped error
		stopped, err = o.otherNamespaces(ctx, places)
		denied = errors.Join(denied, stopped)
	}
	if err != nil {
		return fmt.Errorf("admin: check the address: %w", err)
	}
	wrong.Found = slices.SortedFunc(maps.Keys(places), func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Keyspace, b.Keyspace), cmp.Compare(a.Layout, b.Layout))
	})
	if wrong.Incomplete = denied; len(wrong.Found) > maxPlaces {
		wrong.Found = wrong.Found[:maxPlaces]
		wrong.Incomplete = errors.Join(denied, fmt.Errorf("more than %d places exist", maxPlaces))
	}
	return wrong
}

// ownAddress reports whether a shard of the Transactor's own slots is its own, or has no identity yet.
func (o *Operator) ownAddress(ctx context.Context) (bool, error) {
	for chunk := range slices.Chunk(o.transactor.Keyspace().Slots(), slotsAtOnce) {
		existing, _, err := o.scripts.Existing(ctx, chunk)
		if err != nil {
			return false, err
		}
		owners, err := o.scripts.Identities(ctx, existing)
		if err != nil {
			return false, err
		}
		for _, n := range existing {
			if owner, known := owners[n]; !known || owner == o.scripts.Identity() {
				return true, nil
			}
		}
	}
	return false, nil
}

// sameNamespace adds the places of the Transactor's namespace in any slot.
func (o *Operator) sameNamespace(ctx context.Context, places map[Place]bool) error {
	for chunk := range slices.Chunk(luatx.OwnTags().Slots(), slotsAtOnce) {
		owners, err := o.scripts.Identities(ctx, chunk)
		if err != nil {
			return err
		}
		for _, owner := range owners {
			place := placeOf(owner)
			place.Namespace = o.transactor.Config().Namespace
			places[place] = true
		}
	}
	return nil
}

const (
	// maxPlaces is how many places an AddressError names.
	maxPlaces = 100
	// scanCount is the number of keys of one SCAN, scanCalls the number of SCANs for each master, and scanTime their time.
	scanCount = 1000
	scanCalls = 1000
	scanTime  = 5 * time.Second
)

// otherNamespaces adds the places of other namespaces. It returns the reason if it did not see all keys.
func (o *Operator) otherNamespaces(ctx context.Context, places map[Place]bool) (stopped, err error) {
	search := &namespaceSearch{calls: scanCalls, shards: map[string]string{}}
	bounded, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	err = o.eachMaster(bounded, search.scan)
	if ctx.Err() == nil && bounded.Err() != nil {
		search.stop(fmt.Errorf("SCAN took longer than %v", scanTime))
		err = nil
	}
	if err != nil {
		return nil, err
	}
	for namespace, key := range search.shards {
		text, err := o.core.Client.HGet(ctx, key, shard.IdentityField).Result()
		if err != nil && !isNoPermission(err) && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		if err != nil {
			places[Place{Namespace: namespace}] = true
			continue
		}
		place := placeOf(shard.IdentityOf(text))
		place.Namespace = namespace
		places[place] = true
	}
	return errors.Join(search.stopped...), nil
}

// eachMaster calls look for each node that holds keys of its own.
func (o *Operator) eachMaster(ctx context.Context, look func(ctx context.Context, node redis.Cmdable, addr string) error) error {
	if cluster, ok := o.core.Client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return look(ctx, node, node.Options().Addr) })
	}
	return o.eachNode(ctx, look)
}

// namespaceSearch looks for the shards of namespaces.
type namespaceSearch struct {
	calls int // for each node

	mu      sync.Mutex
	shards  map[string]string // from a namespace to the inbox of one of its shards
	stopped []error
}

func (s *namespaceSearch) stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = append(s.stopped, err)
}

// scan looks through the keys of one node.
func (s *namespaceSearch) scan(ctx context.Context, node redis.Cmdable, addr string) error {
	cursor := uint64(0)
	for range s.calls {
		keys, next, err := node.Scan(ctx, cursor, "*"+shard.InboxSuffix, scanCount).Result()
		if isNoPermission(err) {
			s.stop(fmt.Errorf("the user may not run SCAN to find other namespaces: %w", err))
			return nil
		}
		if err != nil {
			return err
		}
		s.add(keys)
		if cursor = next; cursor == 0 {
			return nil
		}
	}
	s.stop(fmt.Errorf("SCAN read only the first %d keys of %s", s.calls*scanCount, addr))
	return nil
}

func (s *namespaceSearch) add(keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if namespace, ok := shard.NamespaceOf(key); ok && len(s.shards) <= maxPlaces {
			s.shards[namespace] = key
		}
	}
}

// placeOf reads the identity of a shard, as luatx.New composes it.
func placeOf(identity string) Place {
	var p Place
	head, space, _ := strings.Cut(identity, ", namespace ")
	_, _ = fmt.Sscanf(head, "luatx %d", &p.Layout) // another text has layout 0
	p.Namespace, space, _ = strings.Cut(space, ", ")
	if n, ok := strings.CutSuffix(space, " partitions"); ok {
		p.Keyspace = "partitions=" + n
	} else if space == "own tags" {
		p.Keyspace = "own"
	}
	return p
}

// isNoPermission reports whether the server denied the user a command or a key.
func isNoPermission(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOPERM") }
