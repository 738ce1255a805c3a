package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressIsDrawnRarelyAndWipedAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &progress{out: &out, what: "shards", total: 400}
		p.add(100)
		p.add(1) // too soon to be drawn
		<-time.After(redrawTime)
		p.set(500)
		p.end()
		want := "\r[======                  ]  25 % of 400 shards\x1b[K\r[" + strings.Repeat("=", barCells) + "] 100 % of 400 shards\x1b[K\r\x1b[K"
		if out.String() != want {
			t.Errorf("%q\nwant %q", out.String(), want)
		}
		out.Reset()
		counted := &progress{out: &out, what: "exported"}
		_, _ = countLines{counted}.Write([]byte("a line\n"))
		if out.String() != "\r1 exported\x1b[K" {
			t.Errorf("%q", out.String())
		}
		read := &progress{what: "bytes", total: 8}
		if _, err := io.ReadAll(countBytes{strings.NewReader("12345678"), read}); err != nil || read.n != 8 {
			t.Errorf("%d bytes, %v", read.n, err)
		}
		read.end() // which is not shown
	})
}
