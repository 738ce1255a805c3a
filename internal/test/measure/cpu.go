package measure

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ServerCPU returns what tells the processor time that the client's servers have used so far, of a cluster all masters
// together: the sum of used_cpu_sys and used_cpu_user of INFO.
func ServerCPU(client redis.UniversalClient) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		cluster, ok := client.(*redis.ClusterClient)
		if !ok {
			return usedCPU(ctx, client)
		}
		var mu sync.Mutex
		var sum time.Duration
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			used, err := usedCPU(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			sum += used
			return err
		})
		return sum, err
	}
}

func usedCPU(ctx context.Context, node redis.Cmdable) (time.Duration, error) {
	info, err := node.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	return parseCPU(info)
}

func parseCPU(info string) (time.Duration, error) {
	var seconds float64
	found := 0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_sys" && name != "used_cpu_user" {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("INFO cpu: %w", err)
		}
		seconds += n
		found++
	}
	if found != 2 {
		return 0, fmt.Errorf("INFO cpu says nothing of used_cpu_sys and used_cpu_user: %q", info)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
