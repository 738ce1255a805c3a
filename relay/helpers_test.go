package relay_test

import (
	"time"

	"github.com/luatx/luatx/internal/script"
)

func scriptBackoff() script.Backoff {
	return script.Backoff{Attempts: 5, Base: time.Second, Cap: time.Minute}
}

func settlement(id, what, lease string) []script.Settlement {
	return []script.Settlement{{ID: id, What: what, Lease: lease}}
}
