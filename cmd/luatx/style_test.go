package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestStyleColorsOnlyTerminals(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	assert.Must(t, err)
	defer func() { assert.Must(t, file.Close()) }()
	terminal, colour := style(file)
	assert.Equal(t, terminal || colour, false, "a file is a terminal")
	terminal, colour = style(&bytes.Buffer{})
	assert.Equal(t, terminal || colour, false, "a buffer is a terminal")

	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal to try: %v", err)
	}
	defer func() { assert.Must(t, pty.Close()) }()
	terminal, colour = style(pty)
	assert.Equal(t, terminal && colour, true, "a terminal is one")
	t.Setenv("NO_COLOR", "1")
	terminal, colour = style(pty)
	assert.Equal(t, terminal && !colour, true, "NO_COLOR takes the colours alone")
	t.Setenv("TERM", "dumb")
	terminal, colour = style(pty)
	assert.Equal(t, terminal || colour, false, "a dumb terminal is a terminal")
}
