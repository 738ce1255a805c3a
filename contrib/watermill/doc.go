// Package watermill joins luatx and Watermill (github.com/ThreeDotsLabs/watermill): Redis Streams as a Publisher and a
// Subscriber of Watermill, any Publisher of Watermill at the end of a relay, and a middleware that runs a Watermill
// handler in a luatx transaction.
package watermill
