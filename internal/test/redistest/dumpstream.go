package redistest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

const allPending = 1 << 30

// stream describes the entries of a stream, its ids, its idempotent producers, and its groups with their consumers and
// pending entries. It omits the times since the last delivery or visit, because they change without a command.
func (d *dumper) stream(ctx context.Context, key string) ([]string, error) {
	entries, err := d.client.XRange(ctx, key, "-", "+").Result()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, entry := range entries {
		lines = append(lines, "entry "+entry.ID+" "+values(entry.Values))
	}
	info, err := d.client.XInfoStream(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	lines = append(lines, fmt.Sprintf("last-generated-id %s entries-added %d max-deleted-entry-id %s",
		info.LastGeneratedID, info.EntriesAdded, info.MaxDeletedEntryID))
	if info.IDMPMaxSize != 0 { // from Redis 8.6 on
		lines = append(lines, fmt.Sprintf("idmp-duration %d idmp-maxsize %d pids-tracked %d iids-tracked %d",
			info.IDMPDuration, info.IDMPMaxSize, info.PIDsTracked, info.IIDsTracked))
	}
	groups, err := d.client.XInfoGroups(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(groups, func(a, b redis.XInfoGroup) int { return strings.Compare(a.Name, b.Name) })
	for _, group := range groups {
		part, err := d.group(ctx, key, group)
		if err != nil {
			return nil, err
		}
		lines = append(lines, part...)
	}
	return lines, nil
}

func (d *dumper) group(ctx context.Context, key string, group redis.XInfoGroup) ([]string, error) {
	lines := []string{fmt.Sprintf("group %q last-delivered-id %s entries-read %d", group.Name, group.LastDeliveredID, group.EntriesRead)}
	consumers, err := d.client.XInfoConsumers(ctx, key, group.Name).Result()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(consumers, func(a, b redis.XInfoConsumer) int { return strings.Compare(a.Name, b.Name) })
	for _, consumer := range consumers {
		lines = append(lines, fmt.Sprintf("group %q consumer %q pending %d", group.Name, consumer.Name, consumer.Pending))
	}
	pending, err := d.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: group.Name, Start: "-", End: "+", Count: allPending}).Result()
	if err != nil && err != redis.Nil { //nolint:errorlint // never wrapped
		return nil, err
	}
	for _, p := range pending {
		lines = append(lines, fmt.Sprintf("group %q pending %s consumer %q deliveries %d", group.Name, p.ID, p.Consumer, p.RetryCount))
	}
	return lines, nil
}

// values sorts an entry's fields: the client returns a map.
func values(fields map[string]any) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(&b, "%q: %q ", name, fields[name])
	}
	return strings.TrimSuffix(b.String(), " ")
}
