package watermill_test

import (
	"maps"
	"testing"

	wm "github.com/ThreeDotsLabs/watermill/message"

	luatxwm "github.com/luatx/luatx/contrib/watermill"
	"github.com/luatx/luatx/message"
)

func TestAttributesBecomeTheirTextInMetadata(t *testing.T) {
	t.Parallel()
	var event message.RawMessage
	if err := event.UnmarshalJSON([]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-11-29T10:00:00.5Z",` +
		`"expirytime":"2026-11-29T11:00:00Z","tries":2,"dry":true,"labels":{"a":"b"}}`)); err != nil {
		t.Fatal(err)
	}
	event.Attributes["digest"] = []byte("text")
	msg, err := luatxwm.FromRaw(&event)
	if err != nil {
		t.Fatal(err)
	}
	if want := (wm.Metadata{
		"specversion": "1.0", "source": "/s", "type": "t", "time": "2026-11-29T10:00:00.5Z", "expirytime": "2026-11-29T11:00:00Z",
		"tries": "2", "dry": "true", "labels": `{"a":"b"}`, "digest": "dGV4dA==",
	}); !maps.Equal(msg.Metadata, want) {
		t.Errorf("metadata %v, want %v", msg.Metadata, want)
	}
}
