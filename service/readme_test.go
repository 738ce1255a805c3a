package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/docs"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

const (
	mostLines = 40  // of the program in README.md, without imports and blank lines
	mostPage  = 150 // lines of README.md
	messages  = 1000
)

// readmeProgram returns the text of README.md and its program.
func readmeProgram(t *testing.T) (page, program string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	redistest.Must(t, err)
	for _, block := range docs.Parse(string(text)).Blocks {
		if strings.HasPrefix(block.Text, "package main\n") {
			return string(text), block.Text
		}
	}
	t.Fatal("README.md has no program")
	return "", ""
}

func TestReadmeProgramHasAtMost40Lines(t *testing.T) {
	t.Parallel()
	page, program := readmeProgram(t)
	if n := docs.CodeLines(program); n > mostLines {
		t.Errorf("the program in README.md has %d lines without imports and blank lines, more than %d", n, mostLines)
	}
	if n := strings.Count(page, "\n"); n > mostPage {
		t.Errorf("README.md has %d lines, more than %d", n, mostPage)
	}
	if before, _, _ := strings.Cut(page, "package main\n"); !strings.Contains(before, "go get github.com/luatx/luatx") {
		t.Error("README.md does not begin with go get")
	}
}

// TestReadmeProgramAppliesEachMessageOnceAcrossSIGTERM runs the program as it stands in README.md: twice, or 20 times with
// LUATX_VERIFY.
func TestReadmeProgramAppliesEachMessageOnceAcrossSIGTERM(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	_, program := readmeProgram(t)
	binary := build(t, program)
	rounds := 2
	if os.Getenv("LUATX_VERIFY") != "" {
		rounds = 20
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			runReadme(t, binary, (round+1)*messages/2/(rounds+1))
		})
	}
}

// runReadme ends the program when that many events are published, and starts it again.
func runReadme(t *testing.T, binary string, middle int) {
	t.Helper()
	server := redistest.Single(t, redistest.Own())
	s := shopOf(t, server.Client(t))
	first := start(t, binary, server.Addr())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.send(messages)
	}()
	t.Cleanup(func() { <-sent })
	s.waitForEvents(middle)
	first.terminate()
	s.wantNoLease()
	if n := s.events(); n >= messages {
		t.Errorf("all %d events were published before SIGTERM", n)
	}
	<-sent

	second := start(t, binary, server.Addr())
	s.waitForEvents(messages)
	second.terminate()
	s.wantNoLease()
	s.wantAllOnce()
}

// build builds a program as a package of this module.
func build(t *testing.T, program string) (binary string) {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	redistest.Must(t, os.WriteFile(source, []byte(program), 0o600))
	there, err := filepath.Abs(filepath.Join("readme", "main.go"))
	redistest.Must(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{there: source}})
	redistest.Must(t, err)
	name := filepath.Join(dir, "overlay.json")
	redistest.Must(t, os.WriteFile(name, overlay, 0o600))
	binary = filepath.Join(dir, "readme")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", name, "-o", binary, "./readme").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// process is a run of the program.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	output bytes.Buffer
}

func start(t *testing.T, binary, addr string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), binary)}
	p.cmd.Env = append(os.Environ(), "REDIS_ADDR="+addr)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	redistest.Must(t, p.cmd.Start())
	return p
}

// terminate sends SIGTERM. The program ends in time, with status 0, and has logged nothing.
func (p *process) terminate() {
	p.t.Helper()
	redistest.Must(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	began := time.Now()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the program ended with %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		p.t.Errorf("the program took %v to end", took)
	}
	if p.output.Len() > 0 {
		p.t.Errorf("the program logged:\n%s", p.output.String())
	}
}

// shop is what the program works on, as a test sees it.
type shop struct {
	t         *testing.T
	client    *redis.Client
	keyspace  luatx.Keyspace
	publisher *stream.Publisher
	store     *outbox.Store
}

const customers = 40

func shopOf(t *testing.T, client *redis.Client) *shop {
	t.Helper()
	keyspace := luatx.Partitions(16)
	publisher, err := stream.NewPartitionedPublisher(client, keyspace, stream.PublisherConfig{Stream: "orders"})
	redistest.Must(t, err)
	transactor, err := luatx.New(client, luatx.Config{Namespace: "orders", Keyspace: keyspace})
	redistest.Must(t, err)
	return &shop{t: t, client: client, keyspace: keyspace, publisher: publisher, store: outbox.NewStore(transactor)}
}

// send sends commands, some at a time.
func (s *shop) send(n int) {
	const batch = 10
	for i := 0; i < n; i += batch {
		commands := make([]*message.RawMessage, batch)
		for j := range commands {
			commands[j] = message.NewRaw(fmt.Appendf(nil, `{"Product":"product-%d"}`, i+j), message.Attributes{
				"id": fmt.Sprint(i + j), "source": "/shop", "type": "place.order", "subject": fmt.Sprint("customer-", (i+j)%customers),
			}, nil)
		}
		if err := errors.Join(s.publisher.Send(s.t.Context(), commands...)...); err != nil {
			s.t.Error(err)
			return
		}
	}
}

func (s *shop) events() int64 {
	n, err := s.client.XLen(s.t.Context(), "order-events").Result()
	redistest.Must(s.t, err)
	return n
}

// waitForEvents is patient: the program shares the machine with other tests.
func (s *shop) waitForEvents(n int) {
	s.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); s.events() < int64(n); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%d of %d events were published in 3 minutes", s.events(), n)
		}
	}
}

// wantNoLease looks for what a program that has ended must have given back.
func (s *shop) wantNoLease() {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context())
	counts, err := s.store.Counts(ctx)
	redistest.Must(s.t, err)
	if counts.Leased != 0 {
		s.t.Errorf("%d events are leased", counts.Leased)
	}
	for _, tag := range s.keyspace.Tags() {
		owner, err := s.client.HGet(ctx, s.keyspace.TagKey(tag, "orders", "orders", "lease"), "owner").Result()
		if errors.Is(err, redis.Nil) {
			continue // it was never taken
		}
		if redistest.Must(s.t, err); owner != "" {
			s.t.Errorf("the partition of %s is leased to %s", tag, owner)
		}
	}
	members := s.keyspace.TagKey(s.keyspace.Tags()[0], "orders", "orders", "members")
	if left := s.client.ZRange(ctx, members, 0, -1).Val(); len(left) > 0 {
		s.t.Errorf("the group has the members %q", left)
	}
}

// wantAllOnce wants one effect and one event of each message.
func (s *shop) wantAllOnce() {
	s.t.Helper()
	effects := 0
	for i := range customers {
		key, err := s.keyspace.Key(fmt.Sprint("customer-", i), "bought")
		redistest.Must(s.t, err)
		bought, err := s.client.HGetAll(s.t.Context(), key).Result()
		redistest.Must(s.t, err)
		for product, times := range bought {
			effects++
			if times != "1" {
				s.t.Errorf("%s was bought %s times", product, times)
			}
		}
	}
	if effects != messages {
		s.t.Errorf("%d messages have effects, want %d", effects, messages)
	}
	entries, err := s.client.XRange(s.t.Context(), "order-events", "-", "+").Result()
	redistest.Must(s.t, err)
	products := map[any]bool{}
	for _, entry := range entries {
		products[entry.Values["data"]] = true
	}
	if len(entries) != messages || len(products) != messages {
		s.t.Errorf("%d events of %d messages, want %d", len(entries), len(products), messages)
	}
	for _, key := range stream.PartitionKeys(s.keyspace, "orders") {
		pending, err := s.client.XPending(s.t.Context(), key, "orders").Result()
		if redistest.Must(s.t, err); pending.Count != 0 {
			s.t.Errorf("%d messages of %s are pending", pending.Count, key)
		}
	}
	counts, err := s.store.Counts(s.t.Context())
	redistest.Must(s.t, err)
	if counts.Pending+counts.Waiting+counts.Parked != 0 {
		s.t.Errorf("events are left in the outbox: %+v", counts)
	}
}
