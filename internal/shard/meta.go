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
	startWidth    = 13
	identityBegin = 27 // after the start, the flag of the older generation and the tombstone horizon
)

// meta is the content of the field id in a generation of the inbox; see internal/lua/_meta.lua.
type meta struct {
	start    time.Time // zero if the generation has no mark
	identity string
}

// parseMeta parses the field. In layouts before 3, the field contains only the identity.
func parseMeta(text string) meta {
	if len(text) <= identityBegin || strings.HasPrefix(text, "luatx ") {
		return meta{identity: text}
	}
	return meta{start: eval.Moment(text[:startWidth]), identity: text[identityBegin:]}
}
