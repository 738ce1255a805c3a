package record

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/command"
)

// Filler sets the replies of commands with the parsers of go-redis: it simulates a server that returns given replies. One per
// process is enough.
type Filler struct {
	client  *redis.Client
	tickets sync.Map // ticket → []byte, the frames to return
	last    atomic.Int64
}

// NewFiller returns a Filler.
func NewFiller() *Filler {
	f := &Filler{}
	f.client = offline(func(context.Context, string, string) (net.Conn, error) {
		return &conn{filler: f}, nil
	})
	return f
}

// ticketCommand is the first command of each pipeline. Its argument names the frames of the replies.
const (
	ticketCommand = "luatx.ticket"
	ticketReply   = "+OK\r\n"
)

// Fill sets the reply of each command to the one at its index, as the script returned it for the result of command.Exact.
func (f *Filler) Fill(cmds []redis.Cmder, replies []any) error {
	if len(cmds) != len(replies) {
		return fmt.Errorf("%d replies to %d commands", len(replies), len(cmds))
	}
	var rest []redis.Cmder
	var frames []byte
	for i, reply := range replies {
		if _, exact := reply.(int64); !exact {
			if _, read := command.Exact(cmds[i].Args()); read != nil {
				reply = read(reply)
			}
		}
		if set(cmds[i], reply) {
			continue
		}
		if rest == nil {
			rest, frames = make([]redis.Cmder, 0, len(cmds)-i), []byte(ticketReply)
		}
		rest = append(rest, cmds[i])
		frames = appendFrame(frames, reply)
	}
	if rest == nil {
		return nil
	}
	return f.fill(rest, frames)
}

// set sets the reply of a command if go-redis' parser would result in the same value, and reports whether it did.
func set(cmd redis.Cmder, reply any) bool {
	text, isText := reply.(string)
	number, isNumber := reply.(int64)
	switch cmd := cmd.(type) {
	case *redis.IntCmd:
		if !isNumber {
			return false
		}
		cmd.SetVal(number)
	case *redis.BoolCmd:
		if !isNumber {
			return false
		}
		cmd.SetVal(number == 1)
	case *redis.StatusCmd:
		if !isText {
			return false
		}
		cmd.SetVal(text)
	case *redis.StringCmd:
		if !isText {
			return false
		}
		cmd.SetVal(text)
	case *redis.Cmd:
		if !isText && !isNumber {
			return false
		}
		cmd.SetVal(reply)
	default:
		return false
	}
	cmd.SetErr(nil)
	return true
}

// FillFrames is Fill for replies in frames of RESP2.
func (f *Filler) FillFrames(cmds []redis.Cmder, frames string) error {
	if !slices.ContainsFunc(cmds, inexact) {
		return f.fill(cmds, []byte(ticketReply+frames))
	}
	plain, replies := make([]redis.Cmder, len(cmds)), make([]any, len(cmds))
	for i := range plain {
		plain[i] = redis.NewCmd(context.Background(), ticketCommand)
	}
	if err := f.fill(plain, []byte(ticketReply+frames)); err != nil {
		return err
	}
	for i, cmd := range plain {
		reply, err := cmd.(*redis.Cmd).Result() //nolint:forcetypeassert // made above
		if replies[i] = reply; err != nil && !errors.Is(err, redis.Nil) {
			replies[i] = err
		}
	}
	return f.Fill(cmds, replies)
}

// inexact reports whether a script cannot return the command's reply unchanged.
func inexact(cmd redis.Cmder) bool {
	_, read := command.Exact(cmd.Args())
	return read != nil
}

func (f *Filler) fill(cmds []redis.Cmder, frames []byte) error {
	ticket := strconv.FormatInt(f.last.Add(1), 36)
	f.tickets.Store(ticket, frames)
	defer f.tickets.Delete(ticket)

	ctx := context.Background()
	pipe := f.client.Pipeline()
	_ = pipe.Process(ctx, redis.NewCmd(ctx, ticketCommand, ticket))
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx)
	if _, answered := errors.AsType[redis.Error](err); answered { // a nil reply, or the command's own error
		return nil
	}
	return err
}

// appendFrame appends a reply in the wire format of a script's reply.
func appendFrame(b []byte, reply any) []byte {
	switch v := reply.(type) {
	case nil:
		return append(b, "$-1\r\n"...)
	case string:
		b = append(strconv.AppendInt(append(b, '$'), int64(len(v)), 10), "\r\n"...)
		return append(append(b, v...), "\r\n"...)
	case int64:
		return append(strconv.AppendInt(append(b, ':'), v, 10), "\r\n"...)
	case []any:
		b = append(strconv.AppendInt(append(b, '*'), int64(len(v)), 10), "\r\n"...)
		for _, element := range v {
			b = appendFrame(b, element)
		}
		return b
	case error:
		text := strings.NewReplacer("\r", " ", "\n", " ").Replace(v.Error())
		return append(append(append(b, '-'), text...), "\r\n"...)
	default:
		return appendFrame(b, fmt.Sprint(v))
	}
}

// conn is an in-memory connection. A write names a ticket, and reads return its frames.
type conn struct {
	filler *Filler
	reply  bytes.Reader
}

func (c *conn) Write(b []byte) (int, error) {
	ticket, err := readTicket(b)
	if err != nil {
		if c.reply.Len() > 0 {
			return len(b), nil // the rest of a pipeline that needed several writes
		}
		c.reply.Reset([]byte("-ERR only tickets are answered\r\n"))
		return len(b), nil
	}
	frames, ok := c.filler.tickets.Load(ticket)
	if !ok {
		return 0, fmt.Errorf("no ticket %s", ticket)
	}
	c.reply.Reset(frames.([]byte)) //nolint:forcetypeassert // Fill stores nothing else
	return len(b), nil
}

// readTicket reads the first command of a pipeline and returns its ticket.
func readTicket(b []byte) (string, error) {
	r := bufio.NewReader(bytes.NewReader(b[:min(len(b), 128)]))
	var words [5]string // *2, $n, luatx.ticket, $n, the ticket
	for i := range words {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", err
		}
		words[i] = strings.TrimSpace(line)
	}
	if words[2] != ticketCommand {
		return "", errors.New("no ticket")
	}
	return words[4], nil
}

func (c *conn) Read(b []byte) (int, error) {
	if c.reply.Len() == 0 {
		return 0, io.EOF
	}
	return c.reply.Read(b)
}

func (*conn) Close() error                     { return nil }
func (*conn) LocalAddr() net.Addr              { return addr{} }
func (*conn) RemoteAddr() net.Addr             { return addr{} }
func (*conn) SetDeadline(time.Time) error      { return nil }
func (*conn) SetReadDeadline(time.Time) error  { return nil }
func (*conn) SetWriteDeadline(time.Time) error { return nil }

type addr struct{}

func (addr) Network() string { return "memory" }
func (addr) String() string  { return "filler" }
