package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
)

// gated is a client whose commands wait until it is opened.
type gated struct{ waiting, opened chan struct{} }

func (g gated) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g gated) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.wait()
		return next(ctx, cmds)
	}
}

func (g gated) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.wait()
		return next(ctx, cmd)
	}
}

func (g gated) wait() {
	select {
	case g.waiting <- struct{}{}:
	case <-g.opened:
	}
	<-g.opened
}

func TestScansAreBoundedForEachIdentityAndOverall(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	gate := gated{make(chan struct{}), make(chan struct{})}
	open := sync.OnceFunc(func() { close(gate.opened) })
	defer open()
	_, h := handler(t, client, httpapi.Config{
		MaxScans: 8, Logger: slog.New(slog.DiscardHandler),
		Authorize: func(r *http.Request) (httpapi.Identity, error) {
			return httpapi.Identity{Name: r.Header.Get("Who"), May: httpapi.MayPurge, Payloads: true}, nil
		},
	})
	client.AddHook(gate)
	ask := func(who, path string) *httptest.ResponseRecorder {
		method := http.MethodGet
		path, body, post := strings.Cut(path, " ")
		if post {
			method = http.MethodPost
		}
		r := asked(t, method, path, body)
		r.Header.Set("Who", who)
		return answer(h, r)
	}
	done := make(chan int, 8)
	scan := func(who string) {
		go func() { done <- ask(who, "/api/parked").Code }()
		select {
		case <-gate.waiting:
		case status := <-done:
			t.Fatalf("a scan by %s ended with %d", who, status)
		}
	}
	rejected := func(who string, paths ...string) {
		t.Helper()
		for _, path := range paths {
			ended := make(chan *httptest.ResponseRecorder, 1)
			go func() { ended <- ask(who, path) }()
			select {
			case <-gate.waiting:
				t.Fatalf("%s by %s sends commands to the server", path, who)
			case reply := <-ended:
				if reply.Code != http.StatusTooManyRequests || reply.Header().Get("Retry-After") != "1" {
					t.Errorf("%s by %s: %d, Retry-After %q", path, who, reply.Code, reply.Header().Get("Retry-After"))
				}
			}
		}
	}
	scan("alice")
	scan("alice")
	rejected("alice", "/api/parked", "/api/parked/export", "/api/find?id=1", "/api/audit", "/api/check", "/api/doctor", "/api/drain", "/api/streams?key=x",
		"/parked", "/audit", "/event?id=1", "/preview-rearm", `/api/parked/rearm {"all":true,"dry_run":true}`,
		`/api/parked/discard {"all":true,"dry_run":true,"reason":"r"}`)
	for _, who := range []string{"bob", "carol", "dave"} {
		scan(who)
		scan(who)
	}
	rejected("erin", "/api/parked", "/parked")
	if reply := ask("alice", "/livez"); reply.Code != http.StatusOK {
		t.Errorf("livez: %d", reply.Code)
	}
	open()
	for range 8 {
		if status := <-done; status != http.StatusOK {
			t.Errorf("an accepted scan ended with %d", status)
		}
	}
	if reply := ask("alice", "/api/parked"); reply.Code != http.StatusOK {
		t.Errorf("a scan after the others ended with %d", reply.Code)
	}
}

func TestFailedLoginsAreThrottled(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, op := admintest.Service(t, client, 1)
	const secret = "0123456789abcdef"
	authorize, err := httpapi.Tokens(map[string]httpapi.Identity{secret: {Name: "alice", May: httpapi.MayView}})
	redistest.Must(t, err)
	synctest.Test(t, func(t *testing.T) {
		h, err := httpapi.New(op, httpapi.Config{Authorize: authorize, Logger: slog.New(slog.DiscardHandler)})
		redistest.Must(t, err)
		defer h.Close()
		login := func(from, header string) *httptest.ResponseRecorder {
			r := asked(t, http.MethodGet, "/api/openapi.json", "")
			r.RemoteAddr = from
			r.Header.Set("Authorization", header)
			return answer(h, r)
		}
		want := func(status int, from, header string) {
			t.Helper()
			reply := login(from, header)
			if reply.Code != status {
				t.Errorf("%s from %s: %d, want %d", header, from, reply.Code, status)
			}
			if after, _ := strconv.Atoi(reply.Header().Get("Retry-After")); (after >= 1) != (status == http.StatusTooManyRequests) {
				t.Errorf("%s from %s: %d with Retry-After %d", header, from, reply.Code, after)
			}
		}
		want(http.StatusOK, "[2001:db8::1]:1", "Bearer "+secret)
		for i := range 10 {
			want(http.StatusUnauthorized, "192.0.2.1:1", "Bearer wrong"+strconv.Itoa(i))
		}
		want(http.StatusTooManyRequests, "192.0.2.1:2", "Bearer wrong")
		want(http.StatusTooManyRequests, "192.0.2.1:2", basic(secret)) // a right guess must look like a wrong one
		want(http.StatusTooManyRequests, "[::ffff:192.0.2.1]:2", "Bearer wrong")
		want(http.StatusOK, "192.0.2.1:3", "Bearer "+secret)         // it was accepted before
		want(http.StatusUnauthorized, "192.0.2.2:1", "Bearer wrong") // another address
		want(http.StatusUnauthorized, "192.0.2.1:1", "")             // a request for a login
		for i := range 10 {
			want(http.StatusUnauthorized, fmt.Sprintf("[2001:db8:1::%d]:1", i+1), "Bearer wrong")
		}
		want(http.StatusTooManyRequests, "[2001:db8:1:0:ffff::1]:1", "Bearer wrong") // the same /64
		<-time.After(6 * time.Second)
		want(http.StatusUnauthorized, "192.0.2.1:1", "Bearer wrong")
		want(http.StatusTooManyRequests, "192.0.2.1:1", "Bearer wrong")

		<-time.After(time.Hour)
		refused := 0
		for i := range 150 {
			if login(fmt.Sprintf("198.51.100.%d:1", i), "Bearer wrong").Code == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused < 50 || refused > 60 { // a few addresses may share a cell
			t.Errorf("%d of 150 logins from different addresses were rejected", refused)
		}
		want(http.StatusTooManyRequests, "203.0.113.1:1", basic(secret))
		want(http.StatusOK, "203.0.113.1:1", "Bearer "+secret)
	})
}

func TestOnlyUnknownSendersAreThrottled(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, h := handler(t, client, httpapi.Config{Logger: slog.New(slog.DiscardHandler), Authorize: func(*http.Request) (httpapi.Identity, error) {
		return httpapi.Identity{}, errors.New("the directory does not reply")
	}})
	for i := range 20 {
		r := asked(t, http.MethodGet, "/api/openapi.json", "")
		r.Header.Set("Authorization", "Bearer of "+strconv.Itoa(i))
		if reply := answer(h, r); reply.Code != http.StatusForbidden {
			t.Errorf("request %d: %d, want 403", i, reply.Code)
		}
	}
}

// raw sends bytes to a server, and returns a reader of the reply until the server closes the connection.
func raw(t testing.TB, address, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(redistest.Soon(t), "tcp", address)
	redistest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, text)
	redistest.Must(t, err)
	redistest.Must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	return conn, bufio.NewReader(conn)
}

func TestRejectionsDoNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	_, h := handler(t, client, httpapi.Config{Logger: slog.New(slog.DiscardHandler), Authorize: func(r *http.Request) (httpapi.Identity, error) {
		if r.Header.Get("Who") == "" {
			return httpapi.Identity{}, httpapi.ErrUnknown
		}
		return httpapi.Identity{Name: "bob", May: httpapi.MayView}, nil
	}})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	for request, want := range map[string]int{
		"POST /api/fix HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{":                                               http.StatusUnauthorized,
		"POST /api/fix HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{":                                    http.StatusUnauthorized,
		"POST /api/fix HTTP/1.1\r\nHost: x\r\nWho: bob\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{": http.StatusForbidden,
		"POST /theme HTTP/1.1\r\nHost: x\r\nWho: bob\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n{":         http.StatusUnsupportedMediaType,
		"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{":                                                  http.StatusOK,
		"GET /api/openapi.json HTTP/1.1\r\nHost: x\r\nWho: bob\r\nContent-Length: 1000\r\n\r\n{":                           http.StatusOK,
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			_, from := raw(t, address, request)
			reply, err := http.ReadResponse(from, nil)
			redistest.Must(t, err)
			defer func() { _ = reply.Body.Close() }()
			if reply.StatusCode != want || !reply.Close {
				t.Errorf("status %d, close %v; want %d", reply.StatusCode, reply.Close, want)
			}
			if _, err := io.Copy(io.Discard, from); err != nil {
				t.Errorf("the connection stays open: %v", err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestSlowReaderOfExportIsCutOff(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	client := redistest.Shared(t).Client(t)
	tr, h := handler(t, client, httpapi.Config{Timeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	body := []byte(`{"specversion":"1.0","id":"x","type":"sold","source":"/shop","data":"` + strings.Repeat("x", 500_000) + `"}`)
	for i := range 40 {
		admintest.ParkEvent(t, tr, "a", luatx.Event{ID: strconv.Itoa(i), Body: body}, "malformed", "nested")
	}
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	conn, _ := raw(t, server.Listener.Addr().String(), "GET /api/parked/export HTTP/1.1\r\n")
	redistest.Must(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	_, err := io.WriteString(conn, "Host: x\r\n\r\n")
	redistest.Must(t, err)
	select {
	case <-ended: // although the client does not read
	case <-time.After(20 * time.Second):
		t.Error("the export continues")
		redistest.Must(t, conn.Close())
		<-ended
	}
}
