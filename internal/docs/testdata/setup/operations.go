package setup

import (
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/outbox"
)

var (
	store *outbox.Store
	op    *admin.Operator
	event outbox.Event
	slot  int
	id    string
	keys  []string
	_     = time.Second
)

func prepare() { store = outbox.NewStore(transactor).As("alice") }
