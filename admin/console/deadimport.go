package console

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/outbox"
)

// importPage accepts exported dead letters of a stream, and shows the effect of an import before it happens.
type importPage struct {
	Stream, Lines, Back, Sentence, Reason, CLI, Curl string
	// Read is the number of lines. The stream lacks Missing of their dead letters, and already has Known.
	Read, Missing, Known int
}

// importing is an import as given by a form.
type importing struct {
	stream, lines, reason string
	result                outbox.ImportResult // of the preview
}

// importForm asks for the lines of an export.
func (u *ui) importForm(c *guard.Call) error {
	name := c.Query.Get("stream")
	if err := desk.CheckDead(name, admin.DeadLetterFilter{}); err != nil {
		return err
	}
	return u.show(c, "deadimport", "Import dead letters", importPage{Stream: name, Back: pageLink(c.Base(), "dead", "stream", name)})
}

// importingOf reads a form, and previews its import. The file of a form replaces its text.
func (u *ui) importingOf(c *guard.Call) (i importing, err error) {
	form := c.R.PostForm
	i = importing{stream: form.Get("stream"), lines: form.Get("lines"), reason: form.Get("reason")}
	if err := desk.CheckDead(i.stream, admin.DeadLetterFilter{}); err != nil {
		return i, err
	}
	file, _, err := c.R.FormFile("file")
	if err == nil {
		defer file.Close() //nolint:errcheck // the file was only read
		text, err := io.ReadAll(file)
		if err != nil {
			return i, err
		}
		if len(text) > 0 {
			i.lines = string(text)
		}
	} else if !errors.Is(err, http.ErrMissingFile) && !errors.Is(err, http.ErrNotMultipart) {
		return i, unfit(err)
	}
	i.result, err = c.Op.DeadLetters(i.stream).Import(c.R.Context(), strings.NewReader(i.lines), "", admin.ImportOptions{DryRun: true})
	return i, err
}

// sentence describes the import. It is the confirmation: an import runs only if its form contains the same sentence.
func (i importing) sentence() string {
	text := pretty.Thousands(i.result.Imported) + " dead letters of "
	if i.result.Imported == 1 {
		text = "1 dead letter of "
	}
	return "Import " + text + i.stream
}

// commandLine returns the command for the same import of a file.
func (i importing) commandLine() string {
	return "luatx dead import --reason " + shell(cmp.Or(i.reason, "…")) + " --yes -- " + shell(i.stream) + " " + importFile
}

// curl returns the API request for the same import of a file. jq builds the request from the lines.
func (i importing) curl(c *guard.Call) string {
	return "jq -s --arg stream " + shell(i.stream) + " --arg reason " + shell(cmp.Or(i.reason, "…")) +
		" '{$stream, $reason, letters: .}' " + importFile + " | \\\n" +
		"curl -X POST " + shell(apiAddress(c, "dead/import")) + " \\\n  -H 'Content-Type: application/json' \\\n  -d @-"
}

// importFile is the file name of an export by the API.
const importFile = "dead.ndjson"

// previewImport shows the effect of an import.
func (u *ui) previewImport(c *guard.Call) error {
	i, err := u.importingOf(c)
	if err != nil {
		return err
	}
	return u.showImport(c, i, "")
}

func (u *ui) showImport(c *guard.Call, i importing, notice string) error {
	page := importPage{
		Stream: i.stream, Lines: i.lines, Back: pageLink(c.Base(), "dead", "stream", i.stream), Sentence: i.sentence(), Reason: i.reason,
		CLI: i.commandLine(), Curl: i.curl(c), Read: i.result.Read, Missing: i.result.Imported, Known: i.result.Skipped[outbox.Known],
	}
	return u.show(c, "deadimport", "Preview", page, func(v *view) { v.Notice = notice })
}

// importDead starts the import that a form confirms.
func (u *ui) importDead(c *guard.Call) error {
	i, err := u.importingOf(c)
	if err != nil {
		return err
	}
	if i.result.Imported == 0 || i.reason == "" || c.R.PostForm.Get("confirm") != i.sentence() {
		return u.showImport(c, i, "Nothing has been imported yet. Check the preview, enter a reason, and confirm again.")
	}
	o, err := u.desk.Operations.Import(c.Op, i.stream, strings.NewReader(i.lines), i.reason)
	if err != nil {
		return err
	}
	c.Redirect(fmt.Sprintf("operations/%s?of=%d", o.ID, i.result.Imported))
	return nil
}
