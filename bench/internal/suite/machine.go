package suite

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// peers lists the modules whose versions the report names.
var peers = []string{
	"github.com/redis/go-redis/v9", "github.com/hibiken/asynq", "github.com/ThreeDotsLabs/watermill",
	"github.com/ThreeDotsLabs/watermill-redisstream",
}

// Machine describes the machine and the versions in one line. The argument is the version of the server program.
func Machine(server string) string {
	parts := []string{
		fmt.Sprintf("%s, %d cores, client and servers on one machine", processor(), runtime.NumCPU()),
		runtime.GOOS + "/" + runtime.GOARCH, "Redis " + server, strings.Replace(runtime.Version(), "go", "Go ", 1),
	}
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if slices.Contains(peers, module.Path) {
			name := strings.TrimSuffix(module.Path, "/v9")
			parts = append(parts, name[strings.LastIndex(name, "/")+1:]+" "+strings.TrimPrefix(module.Version, "v"))
		}
	}
	return strings.Join(parts, "; ")
}

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
