package setup

import (
	"context"
	"errors"
	"slices"

	"github.com/luatx/luatx"
)

var (
	arrived = make(chan string, 10)
	errDown = errors.New("down")
)

type (
	ChangeCustomer  struct{ ID string }
	CustomerChanged struct{}
)

func changeCustomer(context.Context, ChangeCustomer) ([]CustomerChanged, error) {
	return []CustomerChanged{{}}, nil
}

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
