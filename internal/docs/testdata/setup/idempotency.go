package setup

import "net/http"

var mux = http.NewServeMux()

func userOf(r *http.Request) string { return r.Header.Get("X-User") }

func pay(w http.ResponseWriter, r *http.Request) {}
