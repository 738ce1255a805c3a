package main

import (
	"bufio"
	"context"
	"crypto/tls"
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

// served runs luatx serve for a test. It returns the URL, and the password if the command prints one. The exit status must
// be 0 after stop.
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
	var started struct{ URL, Password string }
	if err != nil || json.Unmarshal([]byte(line), &started) != nil || started.URL == "" {
		s.t.Fatalf("luatx serve says %q: %v", line, err)
	}
	return started.URL, started.Password, func() {
		s.t.Helper()
		cancel()
		if status := <-done; status != 0 {
			s.t.Errorf("luatx serve ends with status %d", status)
		}
	}
}

// ask sends a request on a new connection, with a token unless that is empty, and reads the whole reply.
func ask(t *testing.T, method, url, token, body string, secure *tls.Config) (status int, state *tls.ConnectionState, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(redistest.Soon(t), method, url, strings.NewReader(body))
	redistest.Must(t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: secure}}
	reply, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer reply.Body.Close() //nolint:errcheck // it was only read
	_, err = io.Copy(io.Discard, reply.Body)
	return reply.StatusCode, reply.TLS, err
}

// fetch returns the status of the reply.
func fetch(t *testing.T, method, url, token, body string) int {
	t.Helper()
	status, _, err := ask(t, method, url, token, body, nil)
	redistest.Must(t, err)
	return status
}

func TestServeServesTheConsoleAndTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t).Addr())
	type request struct {
		method, path, token, body string
		want                      int
	}
	expect := func(url string, requests ...request) {
		t.Helper()
		for _, r := range requests {
			if got := fetch(t, r.method, url+r.path, r.token, r.body); got != r.want {
				t.Errorf("%s by %q: %d, want %d", r.path, r.token, got, r.want)
			}
		}
	}
	url, password, stop := s.served("--as", "alice")
	expect(url,
		request{"GET", "livez", password, "", 200},
		request{"GET", "readyz", password, "", 200},
		request{"GET", "api/stats", password, "", 200},
		request{"GET", "api/check", password, "", 403},
		request{"POST", "api/parked/rearm", password, `{"all":true,"dry_run":true}`, 200},
		request{"GET", "livez", "", "", 200},
		request{"GET", "readyz", "", "", 200},
		request{"GET", "api/stats", "", "", 401},
	)
	stop()

	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) { redistest.Must(t, os.WriteFile(file, []byte(text), 0o600)) }
	const alice, bob = "0123456789abcdef", "fedcba9876543210"
	write("# who may come\n\nalice retry " + alice + "\nbob view " + bob + "\n")
	url, _, stop = s.served("--token-file", file, "--retention", "24h")
	expect(url,
		request{"GET", "livez", "", "", 200},
		request{"GET", "api/stats", "", "", 401},
		request{"GET", "api/stats", "wrong", "", 401},
		request{"GET", "api/stats", bob, "", 200},
		request{"GET", "api/check", bob, "", 200},
		request{"POST", "api/fix", bob, "{}", 403},
		request{"POST", "api/fix", alice, "{}", 202},
	)
	stop()

	url, _, stop = s.served("--token-file", file, "--read-only")
	expect(url, request{"POST", "api/parked/rearm", alice, "{}", 403}) // a viewer
	stop()

	for _, listen := range []string{":0", "0.0.0.0:0", "[::]:0", "example.com:80", "nonsense"} {
		if s.has(s.run(2, "", "serve", "--as", "alice", "--listen", listen), "--token-file"); t.Failed() {
			break // it serves until it is stopped
		}
	}
	for text, want := range map[string]string{"": "no token is given", "alice purge short\n": "at least 16 random bytes", "alice all " + alice: "line 1", "\nalice purge": "line 2"} {
		write(text)
		s.has(s.run(2, "", "serve", "--as", "alice", "--token-file", file), want)
	}
	s.has(s.run(2, "", "serve", "--as", "alice", "--token-file", file+"x"), "no such file")
}

func TestTokenFileRejectsDuplicateSecrets(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "tokens")
	redistest.Must(t, os.WriteFile(file, []byte("alice view "+secret+"\nbob purge "+secret+"\n"), 0o600))
	_, err := readIdentities([]string{file})
	if err == nil || !strings.Contains(err.Error(), "alice") || !strings.Contains(err.Error(), "bob") || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
}
