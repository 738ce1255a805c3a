package docs

import (
	"path/filepath"
	"regexp"
	"testing"
)

// fixedID matches an event without an ID whose body contains an id. The outbox derives another id for each such event,
// but consumers that compare the ids in the bodies take all of these events for one.
var fixedID = regexp.MustCompile(`luatx\.Event\{Body: [^\n]*"id"\s*:\s*"[^\n]*`)

func TestPagesDoNotRepeatTheIDOfAnEvent(t *testing.T) {
	t.Parallel()
	if !fixedID.MatchString(`luatx.Event{Body: []byte(` + "`" + `{"id":"x"}` + "`" + `)}`) {
		t.Fatal("the expression finds nothing")
	}
	for _, page := range pages(t) {
		for _, found := range fixedID.FindAllString(page.text, -1) {
			t.Errorf("%s: %s: take the id from tx.EventID", filepath.Base(page.name), found)
		}
	}
}
