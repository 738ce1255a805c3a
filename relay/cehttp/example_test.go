package cehttp_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/luatx/luatx/relay/cehttp"
)

// A receiver verifies and reads a request, and returns a status that tells the sender the result.
func ExampleRead() {
	oldSecret, newSecret := []byte("0123456789abcdef"), []byte("fedcba9876543210") // while one replaces the other
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		events, err := cehttp.Read(w, r, cehttp.ReadConfig{Secrets: [][]byte{oldSecret, newSecret}})
		for _, event := range events {
			fmt.Println(event.ID(), event.Type(), string(event.Data))
		}
		w.WriteHeader(cehttp.Status(err))
	})

	body := []byte(`{"specversion":"1.0","id":"7","source":"/shop","type":"sold","data":1}`)
	request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/cloudevents+json")
	unsigned := httptest.NewRecorder()
	handler.ServeHTTP(unsigned, request)

	request.Body = http.NoBody
	cehttp.Sign(request.Header, body, "7", time.Now(), newSecret)
	forged := httptest.NewRecorder()
	handler.ServeHTTP(forged, request)

	again := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	again.Header = request.Header
	signed := httptest.NewRecorder()
	handler.ServeHTTP(signed, again)
	fmt.Println(unsigned.Code, forged.Code, signed.Code)
	// Output:
	// 7 sold 1
	// 401 401 204
}
