package trigger_test

import (
	"encoding/json"
	"testing"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

func payload(t testing.TB, msg *message.RawMessage) (p trigger.Payload) {
	t.Helper()
	if err := json.Unmarshal(msg.Data, &p); err != nil {
		t.Error(err)
	}
	return p
}
