package respproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

var errProtocol = errors.New("respproxy: not the Redis protocol")

// maxElements bounds the elements of one frame, against nonsense lengths.
const maxElements = 1 << 28

// readRequest reads one request: its bytes as they came, and its arguments.
func readRequest(r *bufio.Reader) (raw []byte, args []string, err error) {
	var buf bytes.Buffer
	line, err := readLine(r, &buf)
	if err != nil {
		return nil, nil, err
	}
	if line[0] != '*' {
		return buf.Bytes(), strings.Fields(string(line)), nil
	}
	n, err := length(line)
	if err != nil {
		return nil, nil, err
	}
	for range n {
		line, err := readLine(r, &buf)
		if err != nil {
			return nil, nil, broken(err)
		}
		if line[0] != '$' {
			return nil, nil, fmt.Errorf("%w: argument begins with %q", errProtocol, line[0])
		}
		size, err := length(line)
		if err != nil {
			return nil, nil, err
		}
		start := buf.Len()
		if err := readBulk(r, &buf, size); err != nil {
			return nil, nil, err
		}
		args = append(args, string(buf.Bytes()[start:buf.Len()-2]))
	}
	return buf.Bytes(), args, nil
}

// readReply reads one reply with everything in it: its bytes as they came.
func readReply(r *bufio.Reader) ([]byte, error) {
	var buf bytes.Buffer
	for open := 1; open > 0; open-- { // frames that are still to come
		line, err := readLine(r, &buf)
		if err != nil {
			if buf.Len() > 0 {
				err = broken(err)
			}
			return nil, err
		}
		switch line[0] {
		case '+', '-', ':', '_', ',', '#', '(':
			continue
		}
		n, err := length(line)
		if err != nil {
			return nil, err
		}
		switch line[0] {
		case '$', '=', '!':
			if n >= 0 {
				err = readBulk(r, &buf, n)
			}
		case '*', '~', '>':
			open += max(n, 0)
		case '%':
			open += 2 * max(n, 0)
		case '|': // attributes stand before the reply that they belong to
			open += 2*max(n, 0) + 1
		default:
			err = fmt.Errorf("%w: reply begins with %q", errProtocol, line[0])
		}
		if err != nil {
			return nil, err
		}
		if open > maxElements {
			return nil, fmt.Errorf("%w: more than %d elements", errProtocol, maxElements)
		}
	}
	return buf.Bytes(), nil
}

// readLine appends a line to buf and returns it without its end. It is never empty: empty lines are skipped, as the
// server does between requests.
func readLine(r *bufio.Reader, buf *bytes.Buffer) ([]byte, error) {
	for {
		start := buf.Len()
		for {
			part, err := r.ReadSlice('\n')
			buf.Write(part)
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if err != nil {
				return nil, err
			}
			break
		}
		if line := bytes.TrimRight(buf.Bytes()[start:], "\r\n"); len(line) > 0 {
			return line, nil
		}
	}
}

func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < -1 || n > 1<<30 {
		return 0, fmt.Errorf("%w: invalid length %q", errProtocol, line[1:])
	}
	return n, nil
}

// readBulk appends n bytes and their line end.
func readBulk(r *bufio.Reader, buf *bytes.Buffer, n int) error {
	if n < 0 {
		return fmt.Errorf("%w: invalid length %d", errProtocol, n)
	}
	if _, err := io.CopyN(buf, r, int64(n)+2); err != nil {
		return broken(err)
	}
	if !bytes.HasSuffix(buf.Bytes(), []byte("\r\n")) {
		return fmt.Errorf("%w: no line break after %d bytes", errProtocol, n)
	}
	return nil
}

// broken tells an end inside a frame from one between frames.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
