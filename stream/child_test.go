package stream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/stream"
)

// childMain is a consumer in a process of its own, which the parent kills.
func childMain() error {
	args := strings.Fields(os.Getenv(envChild))
	client := redis.NewClient(&redis.Options{Addr: args[0]})
	defer client.Close()
	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: args[1], Group: args[2], BlockTimeout: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ch, err := sub.Subscribe(ctx)
	if err != nil {
		return err
	}
	for msg := range ch {
		fmt.Println(string(msg.Data))
	}
	return errors.New("nobody has killed the child")
}

// killedConsumer runs a child until it has received count messages, and kills it.
func killedConsumer(t *testing.T, addr, key, group string, count int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), envChild+"="+addr+" "+key+" "+group)
	out, err := child.StdoutPipe()
	redistest.Must(t, err)
	redistest.Must(t, child.Start())
	lines := bufio.NewScanner(out)
	for range count {
		if !lines.Scan() {
			t.Fatalf("the child ended: %v", lines.Err())
		}
	}
	redistest.Must(t, child.Process.Kill())
	if err := child.Wait(); err == nil {
		t.Fatal("the child ended by itself")
	}
}
