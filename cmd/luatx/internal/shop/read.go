package shop

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLineBytes is the length of the longest accepted line. Invoices of many hundred lines as JSON are much shorter.
const maxLineBytes = 16 << 20

// Problem is a line that was dropped, with the reason.
type Problem struct {
	File string
	Line int // counted from 1
	Text string
}

func (p Problem) String() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text) }

// ReadFile reads the orders of a file, or of stdin if name is "-". It returns an error if it cannot read the file. See
// [Read] for the other results.
func ReadFile(name string, stdin io.Reader) ([]Order, []Problem, error) {
	if name == "-" {
		return Read("standard input", stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = file.Close() }() // the file was only read
	return Read(name, file)
}

// Read reads orders from CSV with the header
// InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country or from JSON lines of CloudEvents,
// compressed with gzip or not. It returns them in the order in which their invoices first appear. The name only appears in
// messages.
//
// A line that cannot be read is dropped and becomes a Problem. The other lines of its invoice are kept. In detail:
//   - A line of text is a record. Quotes protect commas, not line breaks, so a stray quote only affects its own line.
//   - The lines of a CSV invoice may be apart. A line with another customer than the invoice's first line is a problem.
//   - Description, InvoiceDate and Country are not checked.
//   - Stock codes are case-sensitive and taken unchanged.
//   - A JSON line is a whole invoice, and is dropped as a whole. A second line with the same invoice number is a problem.
//
// Read returns an error if the input has neither format or ends unexpectedly.
func Read(name string, r io.Reader) ([]Order, []Problem, error) {
	in, err := newLineReader(r)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	c := &collector{file: name, in: in, index: map[string]int{}}
	if err := c.read(); err != nil {
		return nil, nil, fmt.Errorf("%s:%d: %w", name, in.number, err)
	}
	return c.orders, c.problems, nil
}

// read detects the format from the first line.
func (c *collector) read() error {
	line, err := c.in.next()
	for err == nil && len(bytes.TrimSpace(line)) == 0 {
		line, err = c.in.next()
	}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("is empty")
	case err != nil:
		return err
	case isHeader(line):
		return c.readOn(c.addRecord)
	case bytes.TrimSpace(line)[0] == '{':
		c.problem(c.addEvent(line))
		return c.readOn(c.addEvent)
	}
	return fmt.Errorf("is neither the header %s nor a JSON object", csvHeader)
}

// readOn adds all following lines that are not blank.
func (c *collector) readOn(add func(line []byte) error) error {
	for {
		line, err := c.in.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, errLongLine):
			return err
		case err == nil && len(bytes.TrimSpace(line)) > 0:
			err = add(line)
		}
		c.problem(err)
	}
}

var errLongLine = fmt.Errorf("is longer than %d MiB", maxLineBytes>>20)

// lineReader reads lines, decompressed and without line ends.
type lineReader struct {
	r      *bufio.Reader
	buf    []byte
	number int // number of the last line
}

func newLineReader(r io.Reader) (*lineReader, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		buffered = bufio.NewReaderSize(unzipped, 64<<10)
	}
	if mark, _ := buffered.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = buffered.Discard(len(mark)) // already peeked
	}
	return &lineReader{r: buffered}, nil
}

// next returns a line that is valid until the next call, io.EOF after the last one, or errLongLine for one that was
// skipped.
func (l *lineReader) next() ([]byte, error) {
	l.buf = l.buf[:0]
	length := 0
	for {
		part, err := l.r.ReadSlice('\n')
		if length += len(part); length <= maxLineBytes {
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF && length == 0:
			return nil, io.EOF
		}
		l.number++
		switch {
		case err != nil && err != io.EOF:
			return nil, err
		case length > maxLineBytes:
			return nil, errLongLine
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(l.buf, []byte("\n")), []byte("\r")), nil
	}
}

// collector collects the content of a file.
type collector struct {
	file     string
	in       *lineReader
	orders   []Order
	problems []Problem
	index    map[string]int // from an invoice to its index in orders
	turnover turnover
}

// problem records why the last line was dropped, if err is not nil.
func (c *collector) problem(err error) {
	if err != nil {
		c.problems = append(c.problems, Problem{File: c.file, Line: c.in.number, Text: err.Error()})
	}
}
