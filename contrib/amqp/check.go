package amqp

import (
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/relay"
)

// headRoom is the space in a frame that is reserved for the other properties, of at most 256 bytes each.
const headRoom = 4 << 10

// checkPublishing rejects messages that the library cannot write: it would fail halfway and break the connection.
func checkPublishing(p *amqp091.Publishing) error {
	for name, text := range map[string]string{
		"ContentType": p.ContentType, "ContentEncoding": p.ContentEncoding, "CorrelationId": p.CorrelationId, "ReplyTo": p.ReplyTo,
		"Expiration": p.Expiration, "MessageId": p.MessageId, "Type": p.Type, "UserId": p.UserId, "AppId": p.AppId,
	} {
		if len(text) > shortText {
			return fmt.Errorf("%s has %d bytes; use at most %d", name, len(text), shortText)
		}
	}
	if err := p.Headers.Validate(); err != nil {
		return fmt.Errorf("headers: %w", err)
	}
	for name := range p.Headers {
		if len(name) > shortText {
			return fmt.Errorf("header %.40q: the name has more than %d bytes", name, shortText)
		}
	}
	return nil
}

var errWide = errors.New("the attributes are larger than a frame; use PublisherConfig.Structured, or a larger frame_max")

// fits returns an error unless the headers fit into one frame of the connection, as AMQP requires.
func fits(p *amqp091.Publishing, frame int) error {
	if frame > 0 && tableSize(p.Headers) > frame-headRoom {
		return malformed(fmt.Errorf("amqp: message %q: %w", p.MessageId, errWide))
	}
	return nil
}

// tableSize returns an upper bound of the encoded size of a table, in bytes.
func tableSize(table amqp091.Table) int {
	size := 4
	for name, value := range table {
		size += 1 + len(name) + valueSize(value)
	}
	return size
}

func valueSize(value any) int {
	size := 1
	switch v := value.(type) {
	case string:
		size += 4 + len(v)
	case []byte:
		size += 4 + len(v)
	case amqp091.Table:
		size += tableSize(v)
	case []any:
		size += 4
		for _, one := range v {
			size += valueSize(one)
		}
	default:
		size += 16
	}
	return size
}

func unrouted(err error) error {
	if _, ok := errors.AsType[relay.Classified](err); ok {
		return err
	}
	return relay.Classify("unrouted", err)
}
