package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
)

// slowRequests returns requests that begin and do not end.
func slowRequests(password string) []string {
	return []string{
		"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
		"POST /api/fix HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		"POST /api/fix HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{",
		"POST /api/fix HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + password + "\r\nContent-Length: 1000\r\n\r\n{",
		"",
	}
}

// TestServeRespondsDespiteSlowConnections runs the program with room for 256 open files.
func TestServeRespondsDespiteSlowConnections(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	exe, wrong := os.Executable()
	if err = errors.Join(err, wrong); err != nil {
		t.Skip(err)
	}
	s := newSite(t, redistest.Shared(t).Addr())
	args := append([]string{"-c", `ulimit -n 256 && exec "$0" "$@"`, exe, "serve", "--listen", "127.0.0.1:0", "--json", "--as", "alice"}, s.flags...)
	program := exec.CommandContext(redistest.Soon(t), sh, args...)
	program.Env = append(os.Environ(), asMain+"=1")
	out, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	redistest.Must(t, err)
	t.Cleanup(func() {
		_ = program.Process.Signal(os.Interrupt)
		_ = program.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	var started struct{ URL, Password string }
	if err != nil || json.Unmarshal([]byte(line), &started) != nil {
		t.Fatalf("it prints %q: %v", line, err)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(started.URL, "http://"), "/")
	for i := range 300 {
		conn, err := (&net.Dialer{}).DialContext(redistest.Soon(t), "tcp", address)
		redistest.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		all := slowRequests(started.Password)
		_, _ = io.WriteString(conn, all[i%len(all)]) // the server may have closed it
	}
	for _, path := range []string{"livez", "api/openapi.json"} {
		var took []time.Duration
		for range 15 {
			began := time.Now()
			if status := fetch(t, http.MethodGet, started.URL+path, started.Password, ""); status != http.StatusOK {
				t.Fatalf("%s beside 300 slow connections: %d", path, status)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		if median := took[len(took)/2]; median > 100*time.Millisecond {
			t.Errorf("%s took %v, at most %v", path, median, took[len(took)-1])
		}
	}
}
