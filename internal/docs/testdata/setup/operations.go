package setup

import (
	"time"

	"github.com/luatx/luatx/outbox"
)

var (
	store *outbox.Store
	slot  int
	id    string
	keys  []string
	_     = time.Second
)

func prepare() { store = outbox.NewStore(transactor).As("alice") }
