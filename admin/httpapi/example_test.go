package httpapi_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/httpapi"
)

// A service mounts the API for clients that have a token.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "orders", Keyspace: luatx.Partitions(4)})
	if err != nil {
		log.Fatal(err)
	}

	op, err := admin.NewOperator(transactor, admin.OperatorConfig{Client: client, Name: "console"})
	if err != nil {
		log.Fatal(err)
	}
	authorize, err := httpapi.Tokens(map[string]httpapi.Identity{"4ff5a6cf4d3d5e6d": {Name: "ada", May: httpapi.MayView}})
	if err != nil {
		log.Fatal(err)
	}
	handler, err := httpapi.New(op, httpapi.Config{Authorize: authorize})
	if err != nil {
		log.Fatal(err)
	}
	defer handler.Close()
	mux := http.NewServeMux()
	mux.Handle("/admin/", http.StripPrefix("/admin", handler))

	for _, token := range []string{"", "4ff5a6cf4d3d5e6d"} {
		r := httptest.NewRequest(http.MethodGet, "/admin/api/stats", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Content-Type"))
	}
	// Output:
	// 401 application/problem+json
	// 200 application/json
}
