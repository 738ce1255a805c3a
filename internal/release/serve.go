package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
)

const patience = time.Minute // time for a program to publish its event, and to stop

// serve runs the program of README.md on an embedded server, sends the command that README.md sends, waits for the event, and
// stops the program by SIGTERM.
func serve(ctx context.Context, binary string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start the embedded Redis: %w", err)
	}
	defer server.Close()
	if _, err := server.XAdd("{pt6}:orders", "*", []string{
		"id", "1", "source", "/shop", "type", "place.order", "subject", "order-17", "data", `{"Product":"tea"}`,
	}); err != nil {
		return fmt.Errorf("add the command: %w", err)
	}
	var output bytes.Buffer
	program := exec.CommandContext(ctx, binary)
	program.Env = append(os.Environ(), "REDIS_ADDR="+server.Addr())
	program.Stdout, program.Stderr = &output, &output
	program.Cancel = func() error { return program.Process.Signal(syscall.SIGTERM) }
	program.WaitDelay = patience
	if err := program.Start(); err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	published := make(chan error, 1)
	go func() {
		published <- awaitEntry(watching, server, "order-events")
		_ = program.Process.Signal(syscall.SIGTERM) // it fails if the program has ended
	}()
	stopped := program.Wait()
	stop()
	if err := errors.Join(<-published, stopped); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(output.Bytes()))
	}
	return nil
}

// awaitEntry waits until the stream has an entry.
func awaitEntry(ctx context.Context, server *miniredis.Miniredis, key string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if entries, err := server.Stream(key); err == nil && len(entries) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the program published no event to %s: %w", key, ctx.Err())
		case <-tick.C:
		}
	}
}
