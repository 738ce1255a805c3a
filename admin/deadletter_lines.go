package admin

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // it names entries of an export
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

// deadLine is a dead letter as Export writes it.
type deadLine struct {
	DeadLetter

	// One of these: names and values, in base64 if some are not UTF-8.
	Texts  []string `json:"fields,omitempty"`
	Base64 [][]byte `json:"fields_base64,omitempty"`
}

func newDeadLine(l DeadLetter) (deadLine, error) {
	for _, text := range []string{l.Stream, l.Entry, l.Group, l.Consumer} {
		if !utf8.ValidString(text) {
			return deadLine{}, fmt.Errorf("admin: export: dead letter %s: the stream, group or consumer is not UTF-8", l.ID)
		}
	}
	j := deadLine{DeadLetter: l}
	j.Texts, j.Base64 = textsOrBytes(l.Fields)
	return j, nil
}

// textsOrBytes returns texts as they are if JSON can hold them, and otherwise their bytes.
func textsOrBytes(texts []string) ([]string, [][]byte) {
	if !slices.ContainsFunc(texts, func(text string) bool { return !utf8.ValidString(text) }) {
		return texts, nil
	}
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return nil, all
}

// dead returns the dead letter of a line.
func (j deadLine) dead() (group.Dead, error) {
	d := group.Dead{
		Stream: j.Stream, Entry: j.Entry, Group: j.Group, Consumer: j.Consumer, Reason: j.Reason, Deliveries: j.Deliveries,
		First: j.First, Last: j.Last, Fields: j.Texts,
	}
	for _, text := range j.Base64 {
		d.Fields = append(d.Fields, string(text))
	}
	switch {
	case len(j.Texts) > 0 && len(j.Base64) > 0:
		return d, errors.New("both fields and fields_base64 are set; remove one")
	case len(d.Fields) == 0 || len(d.Fields)%2 == 1:
		return d, fmt.Errorf("the entry has %d names and values; list a name and a value for each field", len(d.Fields))
	}
	return d, nil
}

// Export writes the dead letters that the filter selects, each as a line of JSON with its fields. It changes nothing, and returns the
// number of lines. Call RecordRead first if the dead letters are for a person.
func (d *DeadLetters) Export(ctx context.Context, w io.Writer, f DeadLetterFilter) (int, error) {
	n := 0
	for l, err := range d.List(ctx, f) {
		if errors.Is(err, stream.ErrNotDeadLetter) {
			continue
		}
		if err != nil {
			return n, err
		}
		j, err := newDeadLine(l)
		if err != nil {
			return n, err
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(j); err != nil {
			return n, fmt.Errorf("admin: export: dead letter %s: %w", l.ID, err)
		}
		if _, err := w.Write(text.Bytes()); err != nil {
			return n, fmt.Errorf("admin: export: %w", err)
		}
		n++
	}
	return n, nil
}

// RecordRead records in the audit that the operator reads the data of dead letters, before it is shown. With dead letters, the act
// is read; without, it is export. why describes the request.
func (d *DeadLetters) RecordRead(ctx context.Context, why string, letters ...DeadLetter) error {
	what, ids := "export", []string{}
	for _, l := range letters {
		what, ids = "read", append(ids, l.ID)
	}
	return d.operator.recordRead(ctx, d.operator.first().Slot, what, fmt.Sprintf("dead letters of %q: %s", d.name, why), ids)
}

// importBytes is about how many bytes of dead letters one script adds.
const importBytes = 1 << 20

// ImportOptions configure Import. The zero value adds the dead letters.
type ImportOptions struct {
	// DryRun reads all lines, counts as imported the dead letters that are missing, changes nothing, and needs no reason.
	DryRun bool
}

// Import adds the lines of Export to the dead letters, under new ids. It skips a line if the dead letter exists, so that a file can be
// imported again. A line goes to the dead letters of the stream that it names, which must be one of these streams. The audit records
// the act import with the reason. An error names the line, and the result counts the lines before it.
func (d *DeadLetters) Import(ctx context.Context, r io.Reader, reason string, opts ImportOptions) (outbox.ImportResult, error) {
	if !opts.DryRun {
		if err := checkReason(reason); err != nil {
			return outbox.ImportResult{}, err
		}
	}
	targets, err := d.targets(ctx)
	if err != nil {
		return outbox.ImportResult{}, d.failed("import", err)
	}
	i := deadImport{
		DeadLetters: d, dryRun: opts.DryRun, why: reason, targets: targets, known: map[string]map[digest]bool{}, steps: map[string]*deadStep{}, copied: map[string]bool{},
		result: outbox.ImportResult{Skipped: map[outbox.Outcome]int{}},
	}
	if !opts.DryRun {
		i.result.Operation = newOperation()
	}
	decoder := json.NewDecoder(r)
	for number := 1; ; number++ {
		var j deadLine
		err := decoder.Decode(&j)
		if errors.Is(err, io.EOF) {
			return i.result, i.flush(ctx)
		}
		if err == nil {
			i.result.Read++
			err = i.add(ctx, j)
		}
		if failed, storage := errors.AsType[*outbox.StorageError](err); storage {
			return i.result, failed
		}
		if err != nil {
			err = fmt.Errorf("admin: import: line %d: %w", number, err)
			return i.result, errors.Join(err, i.flush(ctx))
		}
	}
}

// targets returns the dead-letter streams that lines may go to, by the streams that they name. The key "" stands for any stream.
func (d *DeadLetters) targets(ctx context.Context) (map[string]string, error) {
	found, err := d.named(ctx)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	all := map[string]string{}
	for _, s := range found {
		all[s.stream] = s.key
	}
	if len(found) == 0 { // nothing was added to these streams yet
		for _, key := range append(stream.PartitionKeys(d.operator.transactor.Keyspace(), d.name), d.name) {
			all[key] = stream.DeadLetterKey(key)
		}
	}
	return all, nil
}

// digest names a dead letter by everything that is known of it.
type digest [sha1.Size]byte

func digestOf(d group.Dead) (sum digest) {
	h := sha1.New() //nolint:gosec // it names entries of an export
	for _, text := range d.Write() {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return digest(h.Sum(nil))
}

// deadImport collects dead letters of one dead-letter stream until they are worth a script.
type deadImport struct {
	*DeadLetters

	dryRun  bool
	why     string
	targets map[string]string
	known   map[string]map[digest]bool // by dead-letter stream
	steps   map[string]*deadStep
	copied  map[string]bool
	result  outbox.ImportResult

	key  string
	args []any
	ids  []string
	size int
}

func (i *deadImport) add(ctx context.Context, j deadLine) error {
	key, ok := i.targets[j.Stream]
	if !ok {
		key, ok = i.targets[""]
	}
	if !ok {
		return fmt.Errorf("the stream is %q; import the line into that stream, or into the partitioned stream that contains it", j.Stream)
	}
	d, err := j.dead()
	if err != nil {
		return err
	}
	if err := i.learn(ctx, key); err != nil {
		return i.failed("import", err)
	}
	sum := digestOf(d)
	if i.known[key][sum] {
		i.result.Skipped[outbox.Known]++
		return nil
	}
	i.known[key][sum] = true
	texts, size := d.Write(), 0
	for _, text := range texts {
		size += len(text)
	}
	if key != i.key || len(i.ids) == maxIDs || i.size+size > importBytes {
		if err := i.flush(ctx); err != nil {
			return err
		}
	}
	i.key, i.ids, i.size = key, append(i.ids, j.ID), i.size+size
	i.args = append(i.args, j.ID, len(texts))
	for _, text := range texts {
		i.args = append(i.args, text)
	}
	return nil
}

// learn reads which dead letters a dead-letter stream holds.
func (i *deadImport) learn(ctx context.Context, key string) error {
	if i.known[key] != nil {
		return nil
	}
	known := map[digest]bool{}
	for page, err := range i.pages(ctx, source{key: key}, "-", nil) {
		if err != nil {
			return err
		}
		for _, d := range page {
			if !d.Foreign {
				known[digestOf(d)] = true
			}
		}
	}
	i.known[key] = known
	return nil
}

func (i *deadImport) flush(ctx context.Context) error {
	if len(i.ids) == 0 {
		return nil
	}
	if i.dryRun {
		i.result.Imported += len(i.ids)
		i.args, i.ids, i.size = nil, nil, 0
		return nil
	}
	s := i.steps[i.key]
	if s == nil {
		s, i.copied[i.key] = i.operator.deadStep(i.result.Operation, i.key, i.why)
		i.steps[i.key] = s
	}
	reply, err := runLoaded(ctx, s.client, deadImportScript, []string{i.key, s.audit}, s.next(i.args...)...)
	if _, err = repliedLetters(reply, err, len(i.ids)); err != nil {
		return i.failed("import", err)
	}
	i.result.Imported += len(i.ids)
	if i.copied[i.key] {
		err = i.operator.copyRecord(ctx, s.act, "import", i.ids)
	}
	i.args, i.ids, i.size = nil, nil, 0
	return err
}
