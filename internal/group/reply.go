package group

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
)

// maxReason is the maximum size of the reason in a dead letter, in bytes.
const maxReason = 1024

// Reason truncates the text of an error to the size of a dead letter's reason, between two characters.
func Reason(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// DeadLetterKey returns the default key of a stream's dead letters. See package stream.
func DeadLetterKey(stream string) string { return beside(stream, ":dead") }

// TakenKey returns the key of a stream's records of takeovers; see internal/lua/_taken.lua.
func TakenKey(stream string) string { return beside(stream, ":taken") }

// AuditKey returns the key of the acts of operators on a dead-letter stream.
func AuditKey(dead string) string { return beside(dead, ":audit") }

// beside returns a key in the slot of a stream. It is the stream's key with the suffix, and has braces if it needs
// them.
func beside(stream, suffix string) string {
	home := slot.Of(stream)
	if key := stream + suffix; slot.Of(key) == home {
		return key
	}
	if key := "{" + stream + "}" + suffix; slot.Of(key) == home {
		return key
	}
	return "{" + slot.Text(home) + "}:" + stream + suffix
}

// IsReply reports whether an error is a reply of the server. It returns false for an error of the network.
func IsReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// HasCode reports whether an error reply begins with a code.
func HasCode(err error, code string) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(reply.Error(), code)
}

// IsGone reports whether the group does not exist. Before Redis 7, the error of a script begins differently.
func IsGone(err error) bool { return IsReply(err) && strings.Contains(err.Error(), "NOGROUP") }
