// Package scripted answers the commands of a Redis client as a test says. There is no server, and in a bubble of synctest no time but
// the bubble's.
package scripted

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
)

// ErrCut as an answer closes the connection.
var ErrCut = errors.New("scripted: connection cut")

// Late answers after a while.
func Late(wait time.Duration, answer any) func([]string) any {
	return func([]string) any {
		<-time.After(wait)
		return answer
	}
}

// Status is a simple string.
type Status string

// Server receives commands and replies to each.
type Server struct {
	answer func(cmd []string) any
	names  map[string]string // of scripts, by hash
	began  time.Time

	mu    sync.Mutex
	heard []Heard
	open  sync.WaitGroup
}

// Heard is a command that a Server was sent, and how long after New.
type Heard struct {
	At  time.Duration
	Cmd []string
}

// New returns a Server. Its answers are nil, a number, a string, a Status, an error or a list of them. The call of a script that is
// named is heard as the script's name, the number of keys, the keys and the arguments.
func New(answer func(cmd []string) any, scripts ...string) *Server {
	s := &Server{answer: answer, names: map[string]string{}, began: time.Now()}
	for _, name := range scripts {
		s.names[redis.NewScript(lua.Script(name, nil)).Hash()] = name
	}
	return s
}

// Client returns a client of the Server, without retries, whose commands end with their contexts. It is closed at the end of the test.
func (s *Server) Client(t testing.TB, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	opts := &redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			s.open.Go(func() { s.serve(there) })
			return here, nil
		},
		Addr: "127.0.0.1:6379", Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
	}
	for _, c := range change {
		c(opts)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() {
		_ = client.Close()
		s.open.Wait()
	})
	return client
}

// Heard returns the commands that begin with the words, in any case.
func (s *Server) Heard(words ...string) (found []Heard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.heard {
		if begins(h.Cmd, words) {
			found = append(found, h)
		}
	}
	return found
}

// Times returns when the commands came that begin with the words.
func (s *Server) Times(words ...string) (at []time.Duration) {
	for _, h := range s.Heard(words...) {
		at = append(at, h.At)
	}
	return at
}

func begins(cmd, words []string) bool {
	for i, word := range words {
		if i >= len(cmd) || !strings.EqualFold(cmd[i], word) {
			return false
		}
	}
	return true
}

func (s *Server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	replies := make(chan string, 10_000) // a client reads none before it has sent all
	defer close(replies)
	go func() {
		for reply := range replies {
			_, _ = io.WriteString(conn, reply)
		}
	}()
	for in := bufio.NewReader(conn); ; {
		cmd, err := read(in)
		if err != nil {
			return
		}
		reply := s.reply(cmd)
		if err, failed := reply.(error); failed && errors.Is(err, ErrCut) {
			return
		}
		replies <- encode(reply)
	}
}

func (s *Server) reply(cmd []string) any {
	switch strings.ToLower(cmd[0]) {
	case "hello", "client":
		return errors.New("ERR unknown command")
	case "evalsha":
		if name := s.names[cmd[1]]; name != "" {
			cmd = append([]string{name}, cmd[2:]...)
		}
	}
	s.mu.Lock()
	s.heard = append(s.heard, Heard{time.Since(s.began), cmd})
	s.mu.Unlock()
	return s.answer(cmd)
}

func read(in *bufio.Reader) ([]string, error) {
	n, err := number(in)
	if err != nil {
		return nil, err
	}
	cmd := make([]string, n)
	for i := range cmd {
		size, err := number(in)
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		cmd[i] = string(word[:size])
	}
	return cmd, nil
}

// number reads a line such as *3 or $11.
func number(in *bufio.Reader) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

func encode(reply any) string {
	switch reply := reply.(type) {
	case nil:
		return "$-1\r\n"
	case int:
		return fmt.Sprintf(":%d\r\n", reply)
	case string:
		return fmt.Sprintf("$%d\r\n%s\r\n", len(reply), reply)
	case Status:
		return "+" + string(reply) + "\r\n"
	case error:
		return "-" + reply.Error() + "\r\n"
	case []any:
		var text strings.Builder
		fmt.Fprintf(&text, "*%d\r\n", len(reply))
		for _, v := range reply {
			text.WriteString(encode(v))
		}
		return text.String()
	default:
		return encode(fmt.Errorf("ERR scripted: unsupported reply type %T", reply))
	}
}
