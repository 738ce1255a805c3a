package child

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range of outgoing connections, so that a stopped server finds its port free again.
const (
	firstPort   = 10000
	portRange   = 12000
	busDistance = 10000 // a cluster node listens there as well
	portTries   = 200
)

// FreePort returns a port of 127.0.0.1 that was free a moment ago, as was the one at which a cluster node of that port would
// have its bus.
func FreePort() (int, error) {
	for range portTries {
		port := firstPort + rand.IntN(portRange)
		if isFree(port) && isFree(port+busDistance) {
			return port, nil
		}
	}
	return 0, errors.New("no free port found on 127.0.0.1")
}

func isFree(port int) bool {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
