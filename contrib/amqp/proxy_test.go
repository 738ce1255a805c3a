package amqp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

// frame is an AMQP frame. The payload of a method frame begins with class and method.
type frame struct {
	kind    byte
	channel uint16
	payload []byte
}

// method returns class and method of a method frame, or 0 for others.
func (f frame) method() (class, method uint16) {
	if f.kind != 1 || len(f.payload) < 4 {
		return 0, 0
	}
	return binary.BigEndian.Uint16(f.payload), binary.BigEndian.Uint16(f.payload[2:])
}

func (f frame) isAck() bool { class, method := f.method(); return class == 60 && method == 80 }

// blockedFrame and unblockedFrame are the frames of a broker that is short of memory.
var (
	blockedFrame   = frame{kind: 1, payload: append([]byte{0, 10, 0, 60, 3}, "low"...)}
	unblockedFrame = frame{kind: 1, payload: []byte{0, 10, 0, 61}}
)

type proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	down  bool
	pairs map[*pair]bool
	hook  func(frame) []frame // for frames of the broker
}

type pair struct {
	client, broker net.Conn
	writing        sync.Mutex
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	redistest.Must(t, err)
	p := &proxy{listener: listener, target: target, pairs: map[*pair]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", p.target)
		p.mu.Lock()
		if err != nil || p.down {
			p.mu.Unlock()
			_ = client.Close()
			if err == nil {
				_ = broker.Close()
			}
			continue
		}
		one := &pair{client: client, broker: broker}
		p.pairs[one] = true
		p.mu.Unlock()
		p.running.Go(func() { p.carry(one) })
	}
}

func (p *proxy) carry(one *pair) {
	ended := make(chan struct{}, 2)
	p.running.Go(func() { _, _ = io.Copy(one.broker, one.client); ended <- struct{}{} })
	p.running.Go(func() { p.answers(one); ended <- struct{}{} })
	<-ended
	one.close()
	p.mu.Lock()
	delete(p.pairs, one)
	p.mu.Unlock()
}

func (o *pair) close() { _, _ = o.client.Close(), o.broker.Close() }

// answers forwards the broker's frames one by one.
func (p *proxy) answers(one *pair) {
	for {
		head := make([]byte, 7)
		if _, err := io.ReadFull(one.broker, head); err != nil {
			return
		}
		rest := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(one.broker, rest); err != nil {
			return
		}
		f := frame{kind: head[0], channel: binary.BigEndian.Uint16(head[1:]), payload: rest[:len(rest)-1]}
		p.mu.Lock()
		hook := p.hook
		p.mu.Unlock()
		frames := []frame{f}
		if hook != nil {
			frames = hook(f)
		}
		if one.send(frames...) != nil {
			return
		}
	}
}

func (o *pair) send(frames ...frame) error {
	o.writing.Lock()
	defer o.writing.Unlock()
	var buf bytes.Buffer
	for _, f := range frames {
		buf.WriteByte(f.kind)
		_ = binary.Write(&buf, binary.BigEndian, f.channel)
		_ = binary.Write(&buf, binary.BigEndian, uint32(len(f.payload)))
		buf.Write(f.payload)
		buf.WriteByte(0xCE)
	}
	_, err := o.client.Write(buf.Bytes())
	return err
}

// on sets a hook for the broker's frames; nil removes it.
func (p *proxy) on(hook func(frame) []frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.pairs {
		one.close()
	}
}

// outage closes all connections, and rejects new ones until mend is called.
func (p *proxy) outage() (mend func()) {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.cut()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.down = false
	}
}

func (p *proxy) inject(f frame) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for one := range p.pairs {
		errs = append(errs, one.send(f))
	}
	return errors.Join(errs...)
}
