package respproxy

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Action is what happens to one request and its reply. The zero value passes both.
type Action struct {
	kind  kind
	delay time.Duration
	hold  *Hold
}

type kind int

const (
	pass kind = iota
	dropRequest
	cutRequest
	splitRequest
	dropReply
	cutReply
	splitReply
	duplicate
	delayed
	held
)

// Pass forwards the request and its reply.
func Pass() Action { return Action{} }

// DropRequest never forwards the request, nor what follows on its connection, which stays open.
func DropRequest() Action { return Action{kind: dropRequest} }

// CutRequest never forwards the request and closes the connection.
func CutRequest() Action { return Action{kind: cutRequest} }

// SplitRequest forwards the first half of the request's bytes and closes the connection.
func SplitRequest() Action { return Action{kind: splitRequest} }

// DropReply lets the server execute the request, and keeps back its reply and those that follow on the connection,
// which stays open.
func DropReply() Action { return Action{kind: dropReply} }

// CutReply lets the server execute the request and closes the connection in place of the reply.
func CutReply() Action { return Action{kind: cutReply} }

// SplitReply lets the server execute the request, sends the first half of the reply's bytes and closes the connection.
func SplitReply() Action { return Action{kind: splitReply} }

// Duplicate lets the server execute the request twice; the client gets the first reply.
func Duplicate() Action { return Action{kind: duplicate} }

// Delay forwards the request after d.
func Delay(d time.Duration) Action { return Action{kind: delayed, delay: d} }

// HoldBy forwards the request when the hold is released, also when the client has closed its connection since.
func HoldBy(h *Hold) Action { return Action{kind: held, hold: h} }

// Hold keeps requests in the network until Release.
type Hold struct {
	caught, released         chan struct{}
	caughtOnce, releasedOnce sync.Once
}

// NewHold returns a hold for HoldBy.
func NewHold() *Hold {
	return &Hold{caught: make(chan struct{}), released: make(chan struct{})}
}

// Wait waits until a request is held; the error is the context's.
func (h *Hold) Wait(ctx context.Context) error {
	select {
	case <-h.caught:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Release forwards what is held, and lets later requests pass.
func (h *Hold) Release() { h.releasedOnce.Do(func() { close(h.released) }) }

func (h *Hold) catch() { h.caughtOnce.Do(func() { close(h.caught) }) }

// Matcher selects requests; cmd is the command's name and its arguments, as sent.
type Matcher func(cmd []string) bool

// Command matches any of the command names, in either case.
func Command(names ...string) Matcher {
	return func(cmd []string) bool {
		return len(cmd) > 0 && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, cmd[0]) })
	}
}

// Containing matches requests with an argument that contains the text.
func Containing(text string) Matcher {
	return func(cmd []string) bool {
		return slices.ContainsFunc(cmd, func(arg string) bool { return strings.Contains(arg, text) })
	}
}

var isSetup = Command("HELLO", "AUTH", "SELECT", "CLIENT", "READONLY", "READWRITE", "COMMAND", "CLUSTER")

// Work matches everything but what a client sends by itself to set up a connection or to learn about the server.
func Work(cmd []string) bool { return !isSetup(cmd) }
