package measure

import (
	"context"
	"fmt"
	"strconv"
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
	return cpuOf(node.InfoMap(ctx, "cpu"))
}

func cpuOf(info *redis.InfoCmd) (time.Duration, error) {
	if err := info.Err(); err != nil {
		return 0, err
	}
	var sum float64
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info.Item("CPU", name), 64)
		if err != nil {
			return 0, fmt.Errorf("INFO cpu: %s: %w", name, err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second)), nil
}
