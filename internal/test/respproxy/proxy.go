package respproxy

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// keepRequests is how many requests Commands remembers at least.
const keepRequests = 4096

const dialTimeout = 5 * time.Second

// Proxy forwards connections to one server. Its methods may be called from several goroutines.
type Proxy struct {
	target   string
	listener net.Listener
	done     chan struct{}
	wg       sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	sessions map[*session]struct{}
	rules    []*rule
	seen     [][]string
	counts   map[string]int
}

type rule struct{ decide func(cmd []string) Action }

// New listens on a loopback port and forwards to the target, host:port. Close ends it.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("respproxy: %w", err)
	}
	p := &Proxy{
		target: target, listener: listener, done: make(chan struct{}),
		sessions: map[*session]struct{}{}, counts: map[string]int{},
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the host:port that clients use.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes every connection and returns when nothing runs any more. Requests and replies that are
// held or delayed are lost.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.done)
	p.mu.Unlock()
	err := p.listener.Close()
	p.CutAll()
	p.wg.Wait()
	return err
}

// CutAll closes every open connection, on both sides.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.sessions {
		s.close()
	}
}

// Connections is the number of open connections.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}

// On adds a rule: it is asked for every request, one at a time, unless an earlier rule answered other than Pass. It
// must not call the proxy. Remove takes the rule away.
func (p *Proxy) On(decide func(cmd []string) Action) (remove func()) {
	r := &rule{decide: decide}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(other *rule) bool { return other == r })
	}
}

// Next applies the action to the next n requests that match.
func (p *Proxy) Next(n int, match Matcher, action Action) (remove func()) {
	return p.On(func(cmd []string) Action {
		if n <= 0 || !match(cmd) {
			return Pass()
		}
		n--
		return action
	})
}

// DropReply lets the next n requests that match be executed and closes the connection in place of their replies.
func (p *Proxy) DropReply(n int, match Matcher) (remove func()) { return p.Next(n, match, CutReply()) }

// Hold keeps the next request that matches until the hold is released.
func (p *Proxy) Hold(match Matcher) *Hold {
	h := NewHold()
	p.Next(1, match, HoldBy(h))
	return h
}

// Count is the number of requests seen with one of the command names, in either case; without names, of all requests.
// A request that a rule drops counts, and one that it duplicates counts once.
func (p *Proxy) Count(names ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0
	for name, n := range p.counts {
		if len(names) == 0 || Command(names...)([]string{name}) {
			sum += n
		}
	}
	return sum
}

// Commands returns the latest requests seen, 4096 at least, that pass every filter, in the order of arrival, each as
// its name and arguments.
func (p *Proxy) Commands(filters ...Matcher) [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out [][]string
	for _, cmd := range p.seen {
		if !slices.ContainsFunc(filters, func(match Matcher) bool { return !match(cmd) }) {
			out = append(out, slices.Clone(cmd))
		}
	}
	return out
}

// decide records a request and says what happens to it.
func (p *Proxy) decide(cmd []string) Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[strings.ToUpper(cmd[0])]++
	if len(p.seen) >= 2*keepRequests {
		p.seen = slices.Clone(p.seen[keepRequests:])
	}
	p.seen = append(p.seen, cmd)
	for _, r := range p.rules {
		if action := r.decide(cmd); action.kind != pass {
			return action
		}
	}
	return Pass()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			p.pause(10 * time.Millisecond) // out of descriptors, for example: it passes
		default:
			p.wg.Go(func() { p.serve(conn) })
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.target, dialTimeout)
	if err != nil {
		_ = client.Close() // all that a proxy can say
		return
	}
	s := &session{proxy: p, client: client, server: server}
	if p.register(s) {
		s.run()
	}
	s.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s)
}

func (p *Proxy) register(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.sessions[s] = struct{}{}
	return true
}

// pause waits, and reports false when the proxy was closed meanwhile.
func (p *Proxy) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.done:
		return false
	}
}
