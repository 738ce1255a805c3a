package respproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestReadReplyReadsOneCompleteReply(t *testing.T) {
	t.Parallel()
	for _, frame := range []string{
		"+OK\r\n", "-ERR no\r\n", ":1\r\n", "_\r\n", ",1.5\r\n", "#t\r\n", "(123\r\n",
		"$5\r\nhe\r\no\r\n", "$-1\r\n", "$0\r\n\r\n", "=7\r\ntxt:abc\r\n", "!3\r\nERR\r\n",
		"*0\r\n", "*-1\r\n", "*2\r\n*1\r\n:1\r\n$1\r\na\r\n", "~1\r\n+a\r\n", ">2\r\n+message\r\n:1\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", "|1\r\n+ttl\r\n:3\r\n*1\r\n+x\r\n", "*1\r\n|1\r\n+a\r\n:1\r\n:2\r\n",
	} {
		raw, err := readReply(bufio.NewReader(strings.NewReader(frame + "+next\r\n")))
		if err != nil || string(raw) != frame {
			t.Errorf("%q: got %q, %v", frame, raw, err)
		}
	}
}

func TestReadReplyRejectsInvalidInput(t *testing.T) {
	t.Parallel()
	for frame, want := range map[string]error{
		"": io.EOF, "$3\r\nab": io.ErrUnexpectedEOF, "*2\r\n:1\r\n": io.ErrUnexpectedEOF,
		"?x\r\n": errProtocol, "$x\r\n": errProtocol, "$1\r\nabc\r\n": errProtocol, "*9999999999\r\n": errProtocol,
	} {
		if _, err := readReply(bufio.NewReader(strings.NewReader(frame))); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", frame, err, want)
		}
	}
}

func TestReadRequestReadsOneCompleteRequest(t *testing.T) {
	t.Parallel()
	for frame, want := range map[string][]string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n":          {"GET", "k"},
		"*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\n":    {"ECHO", "a\r\nb"},
		"PING  hello\r\n":                         {"PING", "hello"},
		"\r\nPING\r\n":                            {"PING"},
		"*0\r\n":                                  nil,
		"*1\r\n$40000\r\n" + wide(40000) + "\r\n": {wide(40000)},
	} {
		raw, args, err := readRequest(bufio.NewReader(strings.NewReader(frame + "*1\r\n$4\r\nPING\r\n")))
		if err != nil || string(raw) != frame || !slices.Equal(args, want) {
			t.Errorf("%.40q: got %.40q, %.40q, %v", frame, raw, args, err)
		}
	}
}

func wide(n int) string { return strings.Repeat("x", n) }

// FuzzFrameIsAPrefixOfTheInput also tests that the input is forwarded byte by byte.
func FuzzFrameIsAPrefixOfTheInput(f *testing.F) {
	for _, seed := range []string{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "PING\r\n", "%1\r\n+a\r\n|1\r\n+a\r\n:1\r\n:2\r\n", "*-1\r\n", "$-2\r\n", "*1\r\n$-1\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if raw, _, err := readRequest(bufio.NewReader(bytes.NewReader(in))); err == nil && !bytes.HasPrefix(in, raw) {
			t.Errorf("request %q of %q", raw, in)
		}
		if raw, err := readReply(bufio.NewReader(bytes.NewReader(in))); err == nil && !bytes.HasPrefix(in, raw) {
			t.Errorf("reply %q of %q", raw, in)
		}
	})
}
