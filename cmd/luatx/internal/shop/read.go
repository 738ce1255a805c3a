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

// maxLineBytes is the longest line read; invoices of many hundred lines as JSON stay far below it.
const maxLineBytes = 16 << 20

// Problem is a line that was dropped, and why.
type Problem struct {
	File string
	Line int // counted from 1
	Text string
}

func (p Problem) String() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text) }

// ReadFile reads the orders of a file, or of stdin where name is "-". The error says why nothing could be read; see [Read] for
// the rest.
func ReadFile(name string, stdin io.Reader) ([]Order, []Problem, error) {
	if name == "-" {
		return Read("standard input", stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	return Read(name, file)
}

// Read reads orders from CSV with the header InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country
// or from JSON lines of CloudEvents, either of them gzipped or not, in the order in which their invoices first appear. The
// name is for messages only.
//
// A line that cannot be read is dropped and becomes a Problem. The other lines of its invoice are kept. In
// detail:
//   - A line of text is a record: quotes protect commas, not line breaks, so a stray quote costs its own line and never the
//     rest of the file.
//   - The lines of a CSV invoice need not follow one another. One that names another customer than the invoice's first line
//     is a problem.
//   - Description, InvoiceDate and Country play no part and are not checked.
//   - Stock codes are taken as they are, case included.
//   - A JSON line is a whole invoice, dropped as a whole; a second one with the same invoice number is a problem.
//
// The error is for input that is neither, or that breaks off.
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

// read looks at the first line to know what the rest is.
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

// readOn adds all lines that follow and are not blank.
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

// lineReader reads line after line, decompressed, without line ends.
type lineReader struct {
	r      *bufio.Reader
	buf    []byte
	number int // of the line last returned
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
		_, _ = buffered.Discard(len(mark)) // it was peeked
	}
	return &lineReader{r: buffered}, nil
}

// next returns a line that is valid until the following call, io.EOF after the last one, or errLongLine for one that was skipped.
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

// collector gathers what a file holds.
type collector struct {
	file     string
	in       *lineReader
	orders   []Order
	problems []Problem
	index    map[string]int // invoice to its place in orders
	turnover turnover
}

// problem notes why the line last read was dropped, if it was.
func (c *collector) problem(err error) {
	if err != nil {
		c.problems = append(c.problems, Problem{File: c.file, Line: c.in.number, Text: err.Error()})
	}
}
