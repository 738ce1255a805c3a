package message

import "time"

// The context attributes of CloudEvents 1.0, and the extensions this module knows.
const (
	AttrID              = "id"
	AttrSource          = "source"
	AttrSpecVersion     = "specversion"
	AttrType            = "type"
	AttrSubject         = "subject"
	AttrTime            = "time"
	AttrDataContentType = "datacontenttype"
	AttrDataSchema      = "dataschema"

	// AttrExpiryTime is when the message stops being worth handling.
	AttrExpiryTime = "expirytime"
	// AttrCorrelationID joins the messages that one cause has led to.
	AttrCorrelationID = "correlationid"
	// AttrPartitionKey keeps messages of one key in one partition.
	AttrPartitionKey = "partitionkey"
	// AttrDestination names where a message is to be published.
	AttrDestination = "destination"
	// AttrTraceParent and AttrTraceState carry a W3C trace context.
	AttrTraceParent = "traceparent"
	AttrTraceState  = "tracestate"
)

// SpecVersion is the version of CloudEvents that messages are written in.
const SpecVersion = "1.0"

// ContentTypeJSON is the content type of data encoded as JSON.
const ContentTypeJSON = "application/json"

// Attributes are a message's CloudEvents attributes by name, extensions included.
// The text attributes are strings, the times are time.Time (an RFC 3339 string is understood as well).
type Attributes map[string]any

// ID returns the id; an id is unique within its source.
func (a Attributes) ID() string { return a.text(AttrID) }

// Source returns who made the message.
func (a Attributes) Source() string { return a.text(AttrSource) }

// SpecVersion returns the version of CloudEvents the message says it has.
func (a Attributes) SpecVersion() string { return a.text(AttrSpecVersion) }

// Type returns what kind of message it is.
func (a Attributes) Type() string { return a.text(AttrType) }

// Subject returns what the message is about, often an aggregate's id.
func (a Attributes) Subject() string { return a.text(AttrSubject) }

// DataContentType returns the media type of the data; empty means JSON.
func (a Attributes) DataContentType() string { return a.text(AttrDataContentType) }

// DataSchema returns the URI of the schema that the data adheres to.
func (a Attributes) DataSchema() string { return a.text(AttrDataSchema) }

// Destination returns where the message is to be published.
func (a Attributes) Destination() string { return a.text(AttrDestination) }

// CorrelationID returns what joins the messages of one cause.
func (a Attributes) CorrelationID() string { return a.text(AttrCorrelationID) }

// PartitionKey returns the key whose messages belong together.
func (a Attributes) PartitionKey() string { return a.text(AttrPartitionKey) }

// Time returns when the message was made; false where that is absent or no time.
func (a Attributes) Time() (time.Time, bool) { return a.when(AttrTime) }

// ExpiryTime returns when the message expires; false where that is absent or no time.
func (a Attributes) ExpiryTime() (time.Time, bool) { return a.when(AttrExpiryTime) }

func (a Attributes) text(name string) string {
	s, _ := a[name].(string)
	return s
}

func (a Attributes) when(name string) (time.Time, bool) {
	switch v := a[name].(type) {
	case time.Time:
		return v, !v.IsZero()
	case string:
		t, err := time.Parse(time.RFC3339Nano, v)
		return t, err == nil
	default:
		return time.Time{}, false
	}
}
