// Package cloudevents exchanges events with the Go SDK of CloudEvents (github.com/cloudevents/sdk-go/v2). [ToEvent] and
// [FromEvent] convert events, a [Publisher] lets a relay publish with any client of the SDK, and a [Receiver] passes the events
// that a client receives to a router and responds after the commit.
package cloudevents
