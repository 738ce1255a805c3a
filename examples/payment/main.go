// Command payment is an HTTP endpoint that charges an account once for each Idempotency-Key, whatever its clients and the
// network do. The charge, its event and the response are one commit.
//
//	go run ./examples/payment
//
// It runs on a Redis inside the process, or on REDIS_ADDRS=host:port. It sends requests to itself, and prints
//
//	first request              201 {"charged":500,"left":1500}
//	the same again             201 {"charged":500,"left":1500} (replayed)
//	same key, another body     422
//	no key                     400
//	a reply gets lost          no answer
//	the client tries again     201 {"charged":700,"left":800} (replayed)
//	more than is left          402 "insufficient funds"
//	balance 800, 2 events in the outbox
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/examples/internal/local"
	"github.com/luatx/luatx/idempotency"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

func main() { os.Exit(local.Main("payment", run)) }

// pay charges the account in the path. It is an ordinary handler: its writes are recorded, and commit with its response.
func pay(w http.ResponseWriter, r *http.Request) {
	status, answer, err := charge(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // with a status of 500 or more nothing is written, and the key is free
		return
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func charge(r *http.Request) (status int, answer any, err error) {
	var body struct{ Pence int }
	_ = json.NewDecoder(r.Body).Decode(&body) // an invalid payment has no pence
	if body.Pence <= 0 {
		return http.StatusBadRequest, "pence must be a number above 0", nil
	}
	tx, _ := luatx.TxFromContext(r.Context())
	key, err := tx.Key("balance")
	if err != nil {
		return 0, nil, err
	}
	balance, err := tx.Read().Get(r.Context(), key).Int() // guarded: if it changes before the commit, pay runs again
	if err != nil {
		return 0, nil, err
	}
	if balance < body.Pence {
		return http.StatusPaymentRequired, "insufficient funds", nil
	}
	tx.Pipeline().Set(r.Context(), key, balance-body.Pence, 0)
	err = tx.Emit(luatx.Event{Data: body, Attributes: message.Attributes{"source": "/payments", "type": "payment.made"}})
	return http.StatusCreated, map[string]int{"charged": body.Pence, "left": balance - body.Pence}, err
}

func run(ctx context.Context, out io.Writer) error {
	server, err := local.Open("payment", "")
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	keys := luatx.Partitions(16).WithPrefix(server.Namespace)
	transactor, err := luatx.New(server.Client, luatx.Config{Namespace: server.Namespace, Keyspace: keys})
	if err != nil {
		return err
	}
	once, err := idempotency.New(transactor, idempotency.Config{
		Aggregate: func(r *http.Request) (string, error) { return "account-" + r.PathValue("id"), nil },
		Scope:     func(*http.Request) string { return "invoices" }, // one client; a service returns the authenticated user
	})
	if err != nil {
		return err
	}
	var mux http.ServeMux
	mux.Handle("POST /accounts/{id}/payments", once(http.HandlerFunc(pay)))
	var lose atomic.Bool // lose the next reply: the process crashes between its commit and its reply
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lose.CompareAndSwap(true, false) {
			mux.ServeHTTP(httptest.NewRecorder(), r)
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
			return
		}
		mux.ServeHTTP(w, r)
	}))
	defer service.Close()
	// On a reused connection, Go's client repeats a request with an Idempotency-Key by itself.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(what, key, body string) {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, service.URL+"/accounts/7/payments", strings.NewReader(body))
		req.Header.Set("Idempotency-Key", key)
		text := "no answer"
		if resp, err := client.Do(req); err == nil {
			text = read(resp)
			_ = resp.Body.Close()
		}
		fmt.Fprintf(out, "%-26s %s\n", what, text)
	}
	balance, err := keys.Key("account-7", "balance")
	if err := errors.Join(err, server.Client.Set(ctx, balance, 2000, 0).Err()); err != nil {
		return err
	}
	post("first request", "invoice-1", `{"pence":500}`)
	post("the same again", "invoice-1", `{"pence":500}`)
	post("same key, another body", "invoice-1", `{"pence":900}`)
	post("no key", "", `{"pence":500}`)
	lose.Store(true)
	post("a reply gets lost", "invoice-2", `{"pence":700}`)
	post("the client tries again", "invoice-2", `{"pence":700}`)
	post("more than is left", "invoice-3", `{"pence":801}`)
	counts, err := outbox.NewStore(transactor).Counts(ctx)
	fmt.Fprintf(out, "balance %s, %d events in the outbox\n", server.Client.Get(ctx, balance).Val(), counts.Pending)
	return err
}

// read returns a response as the client sees it.
func read(resp *http.Response) string {
	text := fmt.Sprint(resp.StatusCode)
	if body, err := io.ReadAll(resp.Body); err == nil && resp.Header.Get("Content-Type") != "application/problem+json" {
		text += " " + strings.TrimSpace(string(body))
	}
	if resp.Header.Get(idempotency.Replayed) != "" {
		return text + " (replayed)"
	}
	return text
}
