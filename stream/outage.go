package stream

import (
	"log/slog"
	"strings"
	"sync"

	"github.com/luatx/luatx/internal/group"
)

// outage logs when an operation begins to fail and when it works again, and nothing in between. While the server cannot be
// reached or is not ready, every operation fails for the same reason, which is logged once.
type outage struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[string]map[string]bool // the failed operations by cause, which is an operation or notReady
}

const notReady = ""

// notReadyCodes are the prefixes of replies of a server or cluster that recovers by itself.
var notReadyCodes = []string{"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "BUSY ", "NOREPLICAS", "UNBLOCKED"}

func isNotReady(err error) bool {
	if !group.IsReply(err) {
		return true
	}
	for _, code := range notReadyCodes {
		if group.HasCode(err, code) {
			return true
		}
	}
	return strings.Contains(err.Error(), " -READONLY ") // before Redis 7.0, for the first write of a script
}

func (o *outage) begins(op string, err error) {
	cause := op
	if isNotReady(err) {
		cause = notReady
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if ops := o.failing[cause]; ops != nil {
		ops[op] = true
		return
	}
	if o.failing == nil {
		o.failing = map[string]map[string]bool{}
	}
	o.failing[cause] = map[string]bool{op: true}
	o.log.Error("stream: subscriber failed", "operation", op, "error", err)
}

func (o *outage) over(op string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.failing[op][op] && !o.failing[notReady][op] {
		return
	}
	delete(o.failing, op)
	delete(o.failing, notReady)
	o.log.Info("stream: subscriber recovered", "operation", op)
}
