package amqp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// A DialFunc connects to the broker, for TLS, other credentials or several nodes. The caller of the DialFunc closes the
// connection. The connection must not have a Recovery, because Publisher and Subscriber reconnect themselves.
type DialFunc func(ctx context.Context) (*amqp091.Connection, error)

// ErrClosed is returned by a closed Publisher.
var ErrClosed = errors.New("amqp: closed")

var errRecovery = errors.New("amqp: Config.Recovery is set; leave it out, this package reconnects itself")

// checkDial returns an error unless exactly one of url and dial is set and the URL is valid.
func checkDial(config, url string, dial DialFunc) error {
	if (url == "") == (dial == nil) {
		return fmt.Errorf("amqp: %s.URL and Dial are both set or both empty; set exactly one", config)
	}
	if url == "" {
		return nil
	}
	if _, err := amqp091.ParseURI(url); err != nil {
		return fmt.Errorf("amqp: %s.URL is invalid; use amqp://user:password@host:5672/vhost", config) // the original error contains the URL
	}
	return nil
}

func dialURL(url string, timeout time.Duration) DialFunc {
	return func(ctx context.Context) (*amqp091.Connection, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var stop func() bool
		conn, err := amqp091.DialConfig(url, amqp091.Config{
			Properties: properties(),
			Dial: func(network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				// Cancel the handshake with the context. The library resets the deadline afterwards.
				if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
					return nil, errors.Join(err, conn.Close())
				}
				stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
				return conn, nil
			},
		})
		if stop != nil && !stop() && err == nil {
			err = errors.Join(context.Cause(ctx), conn.CloseDeadline(time.Now()))
		}
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
}

func properties() amqp091.Table {
	table := amqp091.NewConnectionProperties()
	table.SetClientConnectionName("luatx")
	return table
}

// dial connects, and rejects a connection that has a Recovery.
func dial(ctx context.Context, connect DialFunc) (*amqp091.Connection, error) {
	conn, err := connect(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("amqp: connect: %w", err)
	case conn == nil:
		return nil, errors.New("amqp: connect: Dial returned no connection")
	case conn.IsRecoveryEnabled():
		return nil, errors.Join(errRecovery, conn.Close())
	}
	return conn, nil
}

// hangUp closes a connection without long waits for an unresponsive broker.
func hangUp(conn *amqp091.Connection, patience time.Duration) {
	if err := conn.CloseDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, amqp091.ErrClosed) {
		_ = conn.Close() // it is closed either way
	}
}
