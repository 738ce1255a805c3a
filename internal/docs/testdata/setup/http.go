package setup

import (
	"net/http"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/httpapi"
)

type user struct {
	Mail   string
	OnCall bool
}

func session(*http.Request) (user, bool) { return user{}, false }

var (
	op  *admin.Operator
	cfg httpapi.Config
	mux = http.NewServeMux()
)

func prepare() {
	var err error
	op, err = admin.NewOperator(transactor, admin.OperatorConfig{Client: client, Name: "http"})
	must_(err)
}
