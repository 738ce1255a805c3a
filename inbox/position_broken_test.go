package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/repair"
)

func TestRollbackFailureStopsThePartitionUntilARewind(t *testing.T) {
	t.Parallel()
	client, owner := rig.NewUser(t, "+@all")
	ctx, tr := t.Context(), rig.NewTransactor(t, client)
	rig.Grant(t, owner, "-restore") // since the check
	k, wrong := rig.Key(t, tr, "a", "k"), rig.Key(t, tr, "a", "wrong")
	owner.HSet(ctx, k, "f", "v")
	owner.Set(ctx, wrong, "text", 0)
	breaks := true
	r := router(t, "bill", func(ctx context.Context) error {
		pipe := luatx.CmdableFromContext(ctx, client)
		if !breaks {
			return luatx.Queued(pipe.Incr(ctx, rig.Key(t, tr, "a", "n")))
		}
		return errors.Join(luatx.Queued(pipe.Del(ctx, k)), luatx.Queued(pipe.HSet(ctx, wrong, "f", "v")), luatx.Queued(pipe.Set(ctx, k, "not reached", 0)))
	}, luatx.Middleware(tr), inbox.Position(inbox.PositionConfig{MaxAttempts: 1}))
	process := func(offset int) error {
		_, err := r.Process(redistest.Soon(t), ordered(at(offset, &message.Tenure{})))
		return err
	}
	wantBroken := func(offset int) {
		t.Helper()
		var broken *luatx.RollbackError
		if err := process(offset); !errors.As(err, &broken) || broken.Text == "" {
			t.Errorf("offset %d: %v, want a *RollbackError", offset, err)
		}
	}
	wantBroken(1) // and is not parked
	breaks = false
	wantBroken(1)
	wantBroken(2)

	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice"})
	redistest.Must(t, err)
	scope := tr.Config().Namespace + "/bill"
	found := 0
	for finding, err := range op.Check(ctx) {
		redistest.Must(t, err)
		if finding.Kind == repair.Broken && finding.ID == scope+" orders 0" {
			found++
		}
	}
	if found != 1 {
		t.Errorf("the check lists the position %d times", found)
	}
	rewind := admin.Rewind{Scope: scope, Source: "orders", Partition: "0", Offset: "00000000000000000000", Reason: "restored by hand", Preview: true}
	for _, preview := range []bool{true, false} {
		rewind.Preview = preview
		changed, err := op.Rewind(ctx, rewind)
		if err != nil || len(changed) != 1 || !changed[0].Broken || changed[0].To != rewind.Offset {
			t.Errorf("rewind, preview %t: %+v, %v", preview, changed, err)
		}
		if preview {
			wantBroken(1)
		}
	}
	redistest.Must(t, process(1))
	redistest.Must(t, process(2))
	if n := client.Get(ctx, rig.Key(t, tr, "a", "n")).Val(); n != "2" {
		t.Errorf("applied %s times, want 2", n)
	}
}

func TestEngineParksThePayloadAsItWasDelivered(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	type charge struct{ Pence int64 }
	engine := message.NewEngine(message.EngineConfig{})
	redistest.Must(t, engine.Router().Use(luatx.Middleware(tr), inbox.Position(inbox.PositionConfig{DeadLetter: "graveyard"})))
	handle := func(context.Context, *message.TypedMessage[charge]) ([]*message.Message, error) {
		return nil, message.Permanent(errHandler)
	}
	redistest.Must(t, engine.AddHandler("charge", nil, message.NewHandler(handle)))
	const payload = `{"Pence": 250, "Unknown": [1]}`
	attrs := rig.Order("1")
	attrs[message.AttrType] = "charge"
	raw := message.NewRaw([]byte(payload), attrs, message.NewAckingFrom(message.AckingConfig{Position: at(1, &message.Tenure{})}))
	if _, err := engine.Process(t.Context(), raw); err != nil {
		t.Fatal(err)
	}
	keys := client.Keys(t.Context(), "*:graveyard").Val()
	if len(keys) != 1 {
		t.Fatalf("dead-letter streams %v", keys)
	}
	letters := client.XRange(t.Context(), keys[0], "-", "+").Val()
	if len(letters) != 1 || letters[0].Values["data"] != payload || letters[0].Values["ce_type"] != "charge" {
		t.Errorf("dead letters %v", letters)
	}
}
