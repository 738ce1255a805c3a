package expiry

import (
	"crypto/md5" //nolint:gosec // a UUID of version 3 is defined by it
	"encoding/hex"
	"time"
)

// TimeFormat is the format of the time in EventID, in UTC.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// namespace is 892dff4f-c002-3885-b11e-22a3786219c9: the UUID of version 3 of https://github.com/luatx/luatx/expiry in the
// namespace of URLs (RFC 9562). It must never change, because the ids of events in users' brokers are derived from it.
var namespace = [16]byte{0x89, 0x2d, 0xff, 0x4f, 0xc0, 0x02, 0x38, 0x85, 0xb1, 0x1e, 0x22, 0xa3, 0x78, 0x62, 0x19, 0xc9}

// EventID is the default of Config.EventID. It returns the UUID of version 3 (RFC 9562) of the text subject|due in the namespace
// 892dff4f-c002-3885-b11e-22a3786219c9, with due in TimeFormat, truncated to milliseconds.
func EventID(subject string, due time.Time) string {
	return inNamespace(subject + "|" + due.UTC().Format(TimeFormat))
}

// JavaEventID is a Config.EventID for services that share the events of their timers with a Java program. It returns the result
// of UUID.nameUUIDFromBytes((subject + "|" + due).getBytes(UTF_8)).toString() in Java for an Instant due that is truncated to
// milliseconds. For another text, pass its bytes to NameUUIDFromBytes.
func JavaEventID(subject string, due time.Time) string {
	format := TimeFormat
	if due = due.UTC(); due.Nanosecond() < int(time.Millisecond) {
		format = time.RFC3339 // Instant.toString omits a fraction that is zero
	}
	return NameUUIDFromBytes([]byte(subject + "|" + due.Format(format)))
}

// NameUUIDFromBytes returns the same UUID as UUID.nameUUIDFromBytes of Java: of version 3, of the bytes of the name alone. RFC
// 9562 puts a namespace before the name; Java does not.
func NameUUIDFromBytes(name []byte) string {
	sum := md5.Sum(name) //nolint:gosec // a UUID of version 3 is defined by it
	sum[6] = sum[6]&0x0f | 0x30
	sum[8] = sum[8]&0x3f | 0x80
	text := hex.EncodeToString(sum[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// RevokedID returns the id that Revoke gives an event without one: like EventID, but of the text subject|revoked.
func RevokedID(subject string) string { return inNamespace(subject + "|revoked") }

func inNamespace(name string) string {
	return NameUUIDFromBytes(append(namespace[:len(namespace):len(namespace)], name...))
}
