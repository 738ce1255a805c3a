package shard

import (
	"strings"
	"time"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/slot"
)

const (
	// IdentityField is the field of an inbox that holds the identity of its shard.
	IdentityField = fieldID
	// InboxSuffix is the end of the key of every inbox.
	InboxSuffix = ":" + keyInboxA
)

// IdentityOf returns the identity in the value of IdentityField.
func IdentityOf(value string) string { return parseMeta(value).identity }

// NamespaceOf returns the namespace of the key of an inbox. It returns false for other keys.
func NamespaceOf(key string) (string, bool) {
	head, ok := strings.CutSuffix(key, "}"+InboxSuffix)
	namespace, tag, braced := strings.Cut(head, ":{")
	return namespace, ok && braced && namespace != "" && slot.Text(slot.OfTag(tag)) == tag
}

const (
	fieldID       = "id"
	startBegin    = 13 // after the end of the generation
	startEnd      = 26
	identityBegin = 40 // after the start, the flag of the older generation and the tombstone horizon
	identityHead  = "luatx "
)

// meta is the content of the field id in a generation of the inbox; see internal/lua/_meta.lua.
type meta struct {
	start    time.Time // zero if the generation has no mark
	identity string
}

// parseMeta parses the field. In other layouts, the identity begins elsewhere, and there may be no start.
func parseMeta(text string) meta {
	at := strings.Index(text, identityHead)
	switch {
	case at < 0 && len(text) > identityBegin:
		at = identityBegin
	case at != identityBegin:
		return meta{identity: text[max(at, 0):]}
	}
	return meta{start: eval.Moment(text[startBegin:startEnd]), identity: text[at:]}
}
