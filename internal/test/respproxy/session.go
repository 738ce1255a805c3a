package respproxy

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"sync"
)

// session is one client's connection and the one behind it.
type session struct {
	proxy          *Proxy
	client, server net.Conn

	mu     sync.Mutex
	fates  []kind // what happens to the replies to come, in order
	silent bool   // the client is to see nothing more, not even an end
}

var (
	opensStream  = Command("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR")
	isReplicator = Command("SYNC", "PSYNC")
)

func (s *session) close() {
	_ = s.client.Close()
	_ = s.server.Close()
}

// run forwards in both directions until the server has answered everything that the client sent before it left.
func (s *session) run() {
	replies := make(chan struct{})
	go func() {
		defer close(replies)
		s.replies()
	}()
	s.requests()
	if half, ok := s.server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the server executes what it was sent, then ends
	}
	<-replies
}

// requests forwards what the client sends until it ends or is cut.
func (s *session) requests() {
	in := bufio.NewReaderSize(s.client, 1<<16)
	lost, streaming := false, false
	for {
		raw, cmd, err := readRequest(in)
		if err != nil {
			return
		}
		if len(cmd) == 0 { // an empty array: the server ignores it, too
			continue
		}
		action := s.proxy.decide(cmd)
		if lost {
			continue
		}
		streaming = streaming || opensStream(cmd) || isReplyMode(cmd)
		if streaming {
			action = requestSide(action)
		}
		switch action.kind {
		case dropRequest:
			lost = true
			s.silence()
			continue
		case cutRequest:
			_ = s.client.Close()
			return
		case splitRequest:
			_, _ = s.server.Write(raw[:len(raw)/2])
			_ = s.client.Close()
			return
		}
		if isReplicator(cmd) || !s.forward(raw, action, streaming) {
			_ = s.client.Close()
			return
		}
	}
}

// forward waits as long as the action says and sends the request, twice for a duplicate.
func (s *session) forward(raw []byte, action Action, streaming bool) bool {
	if !s.wait(action) {
		return false
	}
	if !streaming { // else replies are not counted
		s.expect(action.kind)
	}
	if action.kind == duplicate {
		raw = slices.Concat(raw, raw)
	}
	_, err := s.server.Write(raw)
	return err == nil
}

func (s *session) wait(action Action) bool {
	switch action.kind {
	case delayed:
		return s.proxy.pause(action.delay)
	case held:
		action.hold.catch()
		select {
		case <-action.hold.released:
		case <-s.proxy.done:
			return false
		}
	}
	return true
}

// replies forwards what the server sends until it ends. Once the client is gone it reads on, so that the server can
// answer.
func (s *session) replies() {
	in := bufio.NewReaderSize(s.server, 1<<16)
	muted := false
	for {
		raw, err := readReply(in)
		if err != nil {
			break
		}
		fate := pass
		if raw[0] != '>' {
			fate = s.nextFate()
		}
		switch {
		case muted || fate == discard:
		case fate == dropReply:
			muted = true
			s.silence()
		case fate == cutReply:
			_ = s.client.Close()
			muted = true
		case fate == splitReply:
			_, _ = s.client.Write(raw[:len(raw)/2])
			_ = s.client.Close()
			muted = true
		default:
			_, _ = s.client.Write(raw) // a client that is gone shows itself to requests
		}
	}
	if !s.isSilent() {
		_ = s.client.Close()
	}
}

// discard is the fate of a duplicate's second reply.
const discard kind = -1

func (s *session) expect(k kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates = append(s.fates, k)
	if k == duplicate {
		s.fates = append(s.fates, discard)
	}
}

func (s *session) nextFate() kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fates) == 0 {
		return pass // a subscription's message, or an error that answers no request
	}
	fate := s.fates[0]
	s.fates = s.fates[1:]
	return fate
}

func (s *session) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

func (s *session) isSilent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}

func isReplyMode(cmd []string) bool {
	return len(cmd) > 1 && strings.EqualFold(cmd[0], "CLIENT") && strings.EqualFold(cmd[1], "REPLY")
}

// requestSide leaves an action alone that needs no matching of replies.
func requestSide(action Action) Action {
	switch action.kind {
	case dropReply, cutReply, splitReply, duplicate:
		return Pass()
	}
	return action
}
