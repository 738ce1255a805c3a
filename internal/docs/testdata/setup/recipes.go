package setup

import (
	"context"
	"errors"
	"slices"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
)

var (
	arrived        = make(chan string, 10)
	errDown        = errors.New("down")
	changeCustomer = message.NewCommandHandler(func(context.Context, struct{ ID string }) ([]struct{}, error) { return nil, nil },
		message.CommandHandlerConfig{Source: "/crm"})
)

func sent(to, id string) { arrived <- to + " " + id }

func twoSent() []string {
	two := []string{<-arrived, <-arrived}
	slices.Sort(two)
	return two
}

func send(context.Context, string, []byte) error { return nil }

func place(tx *luatx.Tx) error {
	key, err := tx.Key("order")
	if err != nil {
		return err
	}
	return tx.Pipeline().HSet(ctx, key, "state", "placed").Err()
}
