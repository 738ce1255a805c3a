package relaying

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// childAddr is the environment variable with the server's address for a second process of this program, which only runs a
// relay.
const childAddr = "LUATX_BENCH_RELAY"

// Child must be called first in main. In a second process, it runs the relay until standard input ends, and returns true.
func Child(ctx context.Context) (was bool, err error) {
	addr := os.Getenv(childAddr)
	if addr == "" {
		return false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the first process ends, even by a crash
	}()
	return true, relayTo(ctx, addr, os.Stdout)
}

// relayTo runs a relay and writes a line for each published event: its number and time.
func relayTo(ctx context.Context, addr string, out io.Writer) error {
	client := connect(addr)
	defer func() { _ = client.Close() }()
	tr, err := transactor(client, luatx.Partitions(latencyTags))
	if err != nil {
		return err
	}
	lines := make(chan [2]int64, 1<<16)
	written := make(chan error, 1)
	go func() { written <- write(out, lines) }()
	r, err := relay.New(tr, noting(func(i int, at int64) { lines <- [2]int64{int64(i), at} }), relay.Config{Logger: tr.Config().Logger})
	if err == nil {
		err = r.Run(ctx)
	}
	close(lines)
	return errors.Join(err, <-written)
}

// write writes the waiting lines together.
func write(out io.Writer, lines <-chan [2]int64) error {
	buffered := bufio.NewWriter(out)
	var failed error // keep receiving after a failure, so that the relay does not wait
	for line := range lines {
		_, err := fmt.Fprintln(buffered, line[0], line[1])
		if len(lines) == 0 {
			err = errors.Join(err, buffered.Flush())
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// noting is a publisher that reports the number of each event and the time at which it was received.
func noting(note func(i int, at int64)) relay.Publisher {
	return relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
		at := time.Now().UnixNano()
		for _, e := range events {
			note(numberOf(e.ID()), at)
		}
		return nil
	})
}

// numberOf returns the number of an event, or a negative number for an unknown id.
func numberOf(id string) int {
	i, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	if err != nil {
		return -1
	}
	return i
}

// startChild starts a second process with the relay, and calls published for each event.
func startChild(ctx context.Context, addr string, published func(i int, at int64)) (stop func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program) //nolint:gosec // itself
	cmd.Env = append(os.Environ(), childAddr+"="+addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var i int
			var at int64
			if _, err := fmt.Sscan(lines.Text(), &i, &at); err == nil {
				published(i, at)
			}
		}
	}()
	return func() error {
		_ = in.Close() // tells it to end
		<-read
		return cmd.Wait()
	}, nil
}
