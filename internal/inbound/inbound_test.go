package inbound_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/message"
)

func TestDecodeReturnsMessagesErrorsAndPanics(t *testing.T) {
	t.Parallel()
	bad := errors.New("no message")
	isPanic := func(err error) bool {
		panicked, ok := errors.AsType[*message.PanicError](err)
		return ok && panicked.Value == "torn" && len(panicked.Stack) > 0
	}
	for name, tc := range map[string]struct {
		unmarshal func(string) (*message.RawMessage, error)
		want      func(error) bool
	}{
		"a message": {func(s string) (*message.RawMessage, error) {
			return message.NewRaw([]byte(s), message.Attributes{message.AttrID: "1"}, nil), nil
		}, nil},
		"no attributes": {func(s string) (*message.RawMessage, error) { return &message.RawMessage{Data: []byte(s)}, nil }, nil},
		"an error":      {func(string) (*message.RawMessage, error) { return nil, bad }, func(err error) bool { return errors.Is(err, bad) }},
		"an error beside a message": {
			func(s string) (*message.RawMessage, error) { return &message.RawMessage{Data: []byte(s)}, bad },
			func(err error) bool { return errors.Is(err, bad) },
		},
		"neither": {func(string) (*message.RawMessage, error) { return nil, nil }, func(err error) bool { return errors.Is(err, message.ErrDecode) }},
		"a panic": {func(string) (*message.RawMessage, error) { panic("torn") }, isPanic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg, err := inbound.Decode("delivered", tc.unmarshal)
			switch {
			case tc.want != nil && (msg != nil || !tc.want(err)):
				t.Errorf("%v, %v", msg, err)
			case tc.want == nil && (err != nil || string(msg.Data) != "delivered" || msg.Attributes == nil):
				t.Errorf("%+v, %v", msg, err)
			}
		})
	}
}

// letters stores the published messages, and returns err.
type letters struct {
	err  error
	all  []*message.RawMessage
	left time.Duration
}

func (l *letters) Publish(ctx context.Context, events []*message.RawMessage) []error {
	l.all = append(l.all, events...)
	end, _ := ctx.Deadline()
	l.left = time.Until(end)
	return []error{l.err}
}

func TestBuryPublishesACopyWithTheReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		msg := message.NewRaw([]byte("data"), message.Attributes{message.AttrID: "1"}, nil)
		l := &letters{}
		assert.Must(t, inbound.Bury(t.Context(), l, msg, errors.New("no such order")))
		if got := l.all[0]; string(got.Data) != "data" || got.ID() != "1" || got.Attributes[inbound.AttrReason] != "no such order" {
			t.Errorf("published %+v", got)
		}
		if _, there := msg.Attributes[inbound.AttrReason]; there {
			t.Error("the message has the letter's attribute")
		}
		assert.Equal(t, l.left, 10*time.Second, "how long it may take")
		l.err = errors.New("unavailable")
		assert.Is(t, inbound.Bury(t.Context(), l, msg, errors.New("no such order")), l.err, "Bury")
	})
}
