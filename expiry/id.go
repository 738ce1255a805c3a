package expiry

import (
	"crypto/md5" //nolint:gosec // what a UUID of version 3 is made of
	"encoding/hex"
	"time"
)

// TimeFormat is how EventID writes a time, in UTC.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// namespace is 892dff4f-c002-3885-b11e-22a3786219c9: the UUID of version 3 of https://github.com/luatx/luatx/expiry in
// the namespace of URLs (RFC 9562). Ids of events in users' brokers are made of it: it never changes.
var namespace = [16]byte{0x89, 0x2d, 0xff, 0x4f, 0xc0, 0x02, 0x38, 0x85, 0xb1, 0x1e, 0x22, 0xa3, 0x78, 0x62, 0x19, 0xc9}

// EventID is the id of the event of a timer: the UUID of version 3 (RFC 9562) of the text subject|due in the namespace
// 892dff4f-c002-3885-b11e-22a3786219c9, due in TimeFormat, cut to milliseconds.
func EventID(subject string, due time.Time) string {
	return uuid(subject + "|" + due.UTC().Format(TimeFormat))
}

// RevokedID is the id that Revoke gives an event without one: as EventID, of the text subject|revoked.
func RevokedID(subject string) string { return uuid(subject + "|revoked") }

func uuid(name string) string {
	sum := md5.Sum(append(namespace[:len(namespace):len(namespace)], name...)) //nolint:gosec // see above
	sum[6] = sum[6]&0x0f | 0x30
	sum[8] = sum[8]&0x3f | 0x80
	text := hex.EncodeToString(sum[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}
