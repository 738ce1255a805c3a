package shard

import (
	"strings"
	"time"

	"github.com/luatx/luatx/internal/eval"
)

const (
	fieldID       = "id"
	startWidth    = 13
	identityBegin = 27 // behind the start, the flag of the older generation and the tombstone horizon
)

// meta is the field id of a generation of the inbox: see internal/lua/_meta.lua.
type meta struct {
	start    time.Time // zero if the generation has no mark
	identity string
}

// parseMeta returns the parts of the field. Layouts before 3 have the identity alone in it.
func parseMeta(text string) meta {
	if len(text) <= identityBegin || strings.HasPrefix(text, "luatx ") {
		return meta{identity: text}
	}
	return meta{start: eval.Moment(text[:startWidth]), identity: text[identityBegin:]}
}
