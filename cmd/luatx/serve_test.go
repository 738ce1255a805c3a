package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

// served runs luatx serve for a test and returns where, and the password if it prints one; its status must be 0 once it is
// stopped.
func (s site) served(words ...string) (url, password string, stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(redistest.Soon(s.t))
	in, out := io.Pipe()
	done := make(chan int, 1)
	go func() {
		defer out.Close() //nolint:errcheck // it cannot fail
		done <- command(ctx, slices.Concat([]string{"serve", "--listen", "127.0.0.1:0", "--json"}, words, s.flags), standard{strings.NewReader(""), out, io.Discard})
	}()
	line, err := bufio.NewReader(in).ReadString('\n')
	var told struct{ URL, Password string }
	if err != nil || json.Unmarshal([]byte(line), &told) != nil || told.URL == "" {
		s.t.Fatalf("luatx serve says %q: %v", line, err)
	}
	return told.URL, told.Password, func() {
		s.t.Helper()
		cancel()
		if status := <-done; status != 0 {
			s.t.Errorf("luatx serve ends with status %d", status)
		}
	}
}

// fetch asks a server, with a token unless that is empty, and returns the status.
func fetch(t *testing.T, method, url, token, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(redistest.Soon(t), method, url, strings.NewReader(body))
	redistest.Must(t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Do(r)
	redistest.Must(t, err)
	defer reply.Body.Close() //nolint:errcheck // it was only read
	_, _ = io.Copy(io.Discard, reply.Body)
	return reply.StatusCode
}

// TestServe holds who is served, with tokens and without, and that it stops cleanly.
func TestServe(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	s := newSite(t, redistest.Shared(t).Addr())
	url, password, stop := s.served("--as", "alice")
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "livez", "", 200},
		{"GET", "readyz", "", 200},
		{"GET", "api/stats", "", 200},
		{"GET", "api/check", "", 403},
		{"POST", "api/parked/rearm", `{"all":true,"dry_run":true}`, 200},
	} {
		if got := fetch(t, c.method, url+c.path, password, c.body); got != c.want {
			t.Errorf("%s: %d, want %d", c.path, got, c.want)
		}
	}
	for path, want := range map[string]int{"livez": 200, "readyz": 200, "api/stats": 401} {
		if got := fetch(t, http.MethodGet, url+path, "", ""); got != want {
			t.Errorf("%s without the password: %d, want %d", path, got, want)
		}
	}
	stop()

	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		t.Helper()
		redistest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	const alice, bob = "0123456789abcdef", "fedcba9876543210"
	write("# who may come\n\nalice retry " + alice + "\nbob view " + bob + "\n")
	url, _, stop = s.served("--token-file", file, "--retention", "24h")
	for _, c := range []struct {
		path, token, body string
		want              int
	}{
		{"livez", "", "", 200},
		{"api/stats", "", "", 401},
		{"api/stats", "wrong", "", 401},
		{"api/stats", bob, "", 200},
		{"api/check", bob, "", 200},
		{"api/fix", bob, "{}", 403},
		{"api/fix", alice, "{}", 202},
	} {
		method := http.MethodGet
		if c.body != "" {
			method = http.MethodPost
		}
		if got := fetch(t, method, url+c.path, c.token, c.body); got != c.want {
			t.Errorf("%s by %q: %d, want %d", c.path, c.token, got, c.want)
		}
	}
	stop()

	url, _, stop = s.served("--token-file", file, "--read-only")
	if got := fetch(t, http.MethodPost, url+"api/parked/rearm", alice, "{}"); got != http.StatusForbidden {
		t.Errorf("a change where one may only look: %d", got)
	}
	stop()

	for _, listen := range []string{":0", "0.0.0.0:0", "[::]:0", "example.com:80", "nonsense"} {
		if s.has(s.run(2, "", "serve", "--as", "alice", "--listen", listen), "--token-file"); t.Failed() {
			break // it serves until it is stopped
		}
	}
	for text, want := range map[string]string{"": "one token at least", "alice purge short\n": "16 or more", "alice all " + alice: "line 1", "\nalice purge": "line 2"} {
		write(text)
		s.has(s.run(2, "", "serve", "--as", "alice", "--token-file", file), want)
	}
	s.has(s.run(2, "", "serve", "--as", "alice", "--token-file", file+"x"), "no such file")
}

func TestTokenFileRefusesDuplicateSecrets(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "tokens")
	redistest.Must(t, os.WriteFile(file, []byte("alice view "+secret+"\nbob purge "+secret+"\n"), 0o600))
	_, err := readIdentities([]string{file})
	if err == nil || !strings.Contains(err.Error(), "alice") || !strings.Contains(err.Error(), "bob") || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
}
