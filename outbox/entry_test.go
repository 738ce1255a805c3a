package outbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

func TestMessagePackIsSmallerAndNamesValuesThatItCannotEncode(t *testing.T) {
	t.Parallel()
	event := message.New(1, message.Attributes{
		"id": message.NewID(), "type": "sold", "source": "/shop", "subject": "a", "time": time.Now(), "attempt": 3, "specversion": "1.0",
	}, nil)
	sizes := make(map[string]int)
	for name, marshal := range map[string]func(*message.Message) (map[string]any, error){"JSON": outbox.JSON, "MessagePack": outbox.MessagePack} {
		fields, err := marshal(event)
		redistest.Must(t, err)
		for field, value := range fields {
			switch v := value.(type) {
			case string:
				sizes[name] += len(field) + len(v)
			case []byte:
				sizes[name] += len(field) + len(v)
			}
		}
		if msg, err := stream.UnmarshalOutbox("1-0", fields); err != nil || msg.Attributes["attempt"] != int64(3) || msg.ID() != event.ID() {
			t.Errorf("%s: %v, %v", name, msg, err)
		}
	}
	if sizes["MessagePack"]*4 > sizes["JSON"]*3 {
		t.Errorf("sizes %v", sizes)
	}
	odd := message.New(1, message.Attributes{"type": "sold", "odd": []int{1}}, nil)
	if _, err := outbox.MessagePack(odd); !errors.Is(err, message.ErrEncode) || !strings.Contains(err.Error(), `"odd"`) {
		t.Errorf("a list: %v", err)
	}
	if _, err := stream.UnmarshalOutbox("1-0", map[string]any{"attributes": "\x81\xa1"}); !errors.Is(err, message.ErrDecode) {
		t.Errorf("half a map: %v", err)
	}
}
