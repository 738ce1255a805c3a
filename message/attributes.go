package message

import "time"

// The context attributes of CloudEvents 1.0, and the extensions that this module uses.
const (
	AttrID              = "id"
	AttrSource          = "source"
	AttrSpecVersion     = "specversion"
	AttrType            = "type"
	AttrSubject         = "subject"
	AttrTime            = "time"
	AttrDataContentType = "datacontenttype"
	AttrDataSchema      = "dataschema"

	// AttrExpiryTime is the time after which the message should not be handled. An Engine or a Router then returns ErrExpired instead
	// of running the handler.
	AttrExpiryTime = "expirytime"
	// AttrCorrelationID is the id that all messages with the same cause share.
	AttrCorrelationID = "correlationid"
	// AttrPartitionKey is the key whose messages stay in one partition.
	AttrPartitionKey = "partitionkey"
	// AttrDestination is the destination to which the message is published.
	AttrDestination = "destination"
	// AttrTraceParent and AttrTraceState hold a W3C trace context.
	AttrTraceParent = "traceparent"
	AttrTraceState  = "tracestate"
)

// SpecVersion is the CloudEvents version of encoded messages.
const SpecVersion = "1.0"

// ContentTypeJSON is the content type of data encoded as JSON.
const ContentTypeJSON = "application/json"

// Attributes are a message's CloudEvents attributes by name, including extensions. Text attributes are strings. Times are
// time.Time, or strings in RFC 3339 format.
type Attributes map[string]any

// ID returns the id, which is unique within its source.
func (a Attributes) ID() string { return a.text(AttrID) }

// Source returns the creator of the message.
func (a Attributes) Source() string { return a.text(AttrSource) }

// SpecVersion returns the CloudEvents version that the message declares.
func (a Attributes) SpecVersion() string { return a.text(AttrSpecVersion) }

// Type returns the type of the message.
func (a Attributes) Type() string { return a.text(AttrType) }

// Subject returns the subject of the message, often the id of an aggregate.
func (a Attributes) Subject() string { return a.text(AttrSubject) }

// DataContentType returns the media type of the data. Empty means JSON.
func (a Attributes) DataContentType() string { return a.text(AttrDataContentType) }

// DataSchema returns the URI of the schema of the data.
func (a Attributes) DataSchema() string { return a.text(AttrDataSchema) }

// Destination returns the destination to which the message is published.
func (a Attributes) Destination() string { return a.text(AttrDestination) }

// CorrelationID returns the id that all messages with the same cause share.
func (a Attributes) CorrelationID() string { return a.text(AttrCorrelationID) }

// PartitionKey returns the key whose messages stay together.
func (a Attributes) PartitionKey() string { return a.text(AttrPartitionKey) }

// Time returns the time at which the message was created, and false if it is missing or not a time.
func (a Attributes) Time() (time.Time, bool) { return a.when(AttrTime) }

// ExpiryTime returns the time at which the message expires, and false if it is missing or not a time.
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
