package shard

import (
	"time"

	"github.com/luatx/luatx/internal/eval"
)

const (
	fieldMeta     = "meta"
	startWidth    = 13
	identityBegin = 27 // behind the start, the flag of the older generation and the tombstone horizon
)

// meta is the field of that name in a generation of the inbox: see internal/lua/_meta.lua.
type meta struct {
	start    time.Time // zero if the generation has no mark
	identity string
}

// parseMeta returns the parts of the field. A text that is too short to have an identity counts as one.
func parseMeta(text string) meta {
	if len(text) <= identityBegin {
		return meta{identity: text}
	}
	return meta{start: eval.Moment(text[:startWidth]), identity: text[identityBegin:]}
}
