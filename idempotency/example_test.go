package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/idempotency"
)

// A payment is sent twice because its first response seemed lost. It takes effect once.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	transactor, err := luatx.New(client, luatx.Config{Namespace: "bank", Keyspace: luatx.Partitions(16)})
	if err != nil {
		fmt.Println(err)
		return
	}
	once, err := idempotency.New(transactor, idempotency.Config{
		Aggregate: func(r *http.Request) (string, error) { return "account-" + r.PathValue("id"), nil },
		Scope:     func(r *http.Request) string { return r.Header.Get("X-User") }, // set by the authentication
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/payments", once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := luatx.TxFromContext(r.Context())
		key, err := tx.Key("payments")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		tx.Pipeline().Incr(r.Context(), key)
		w.WriteHeader(http.StatusCreated)
	})))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/accounts/17/payments", strings.NewReader(`{"pence": 500}`))
		r.Header.Set("X-User", "ann")
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get(idempotency.Replayed) != "")
	}
	key, _ := transactor.Keyspace().Key("account-17", "payments")
	fmt.Println(client.Get(context.Background(), key).Val(), "payment")
	// Output:
	// 201 false
	// 201 true
	// 1 payment
}
