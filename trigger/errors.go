package trigger

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/luatx/luatx/internal/group"
)

var (
	// ErrStarted means that Run was called before. A Runtime runs once.
	ErrStarted = errors.New("trigger: already started")
	// ErrOption is the cause of an OptionError that needs no I/O to detect.
	ErrOption = errors.New("wrong option")
	// ErrAuth means that the server rejects the name or the password.
	ErrAuth = errors.New("authentication failed")
	// ErrDenied means that the user lacks a permission that the trigger needs.
	ErrDenied = errors.New("permission denied")
	// ErrTLS means that one side does not trust the other one, or does not use TLS.
	ErrTLS = errors.New("no TLS connection")
	// ErrUnreachable means that no server responds at the address, or that it is not ready.
	ErrUnreachable = errors.New("server unreachable")
	// ErrWrongType means that the key is not a stream.
	ErrWrongType = errors.New("not a stream")
)

// OptionError explains why a trigger could not start. It never contains a secret.
type OptionError struct {
	// Option is the field of Config to change, such as "Connector.Password".
	Option string
	// Remedy is the change to make.
	Remedy string
	// Err is the cause. It wraps one of the sentinel errors of this package.
	Err error
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("trigger: option %s: %v; %s", e.Option, e.Err, e.Remedy)
}

// Unwrap returns the cause.
func (e *OptionError) Unwrap() error { return e.Err }

func wrong(option, remedy string) error {
	return &OptionError{Option: option, Remedy: remedy, Err: ErrOption}
}

// causes maps errors of the first connection to options, in the order of their checks.
var causes = []struct {
	kind           error
	option, remedy string
	is             func(error) bool
}{
	{ErrAuth, "Connector.Password", "use a name and a password that the server accepts, in the URL or in Username and Password", replies("WRONGPASS", "NOAUTH", "ERR invalid password", "ERR AUTH", "ERR Client sent AUTH")},
	{ErrDenied, "Connector.Username", "grant the user the permissions of docs/trigger.md on these keys and channels", replies("NOPERM")},
	{ErrWrongType, "Stream", "use the key of a stream, or an unused key", replies("WRONGTYPE")},
	{ErrUnreachable, "Connector.Cluster", "set Cluster for a cluster, and clear it for a single server", replies("MOVED", "CROSSSLOT", "ERR This instance has cluster support disabled")},
	{ErrTLS, "Connector.TLS", "trust the server's CA, set a certificate that the server trusts, and use rediss:// if the server uses TLS", isTLS},
	{ErrUnreachable, "Connector.URL", "check the host, the port, whether the server runs, and whether it uses TLS", isNetwork},
}

// explain returns an OptionError for an error of the first connection.
func explain(err error) error {
	if _, ok := errors.AsType[*OptionError](err); ok {
		return err
	}
	for _, c := range causes {
		if c.is(err) {
			return &OptionError{Option: c.option, Remedy: c.remedy, Err: fmt.Errorf("%w: %w", c.kind, err)}
		}
	}
	return &OptionError{Option: "Connector", Remedy: "check the error of the server", Err: err}
}

// replies returns a function that matches error replies by their prefix.
func replies(codes ...string) func(error) bool {
	return func(err error) bool {
		for _, code := range codes {
			if group.HasCode(err, code) {
				return true
			}
		}
		return false
	}
}

func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	return strings.Contains(err.Error(), "tls: ") // an alert of the other side has no type
}

// isNetwork reports whether an error comes from no server, or from one that is not ready.
func isNetwork(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return !group.IsReply(err) || replies("LOADING", "MASTERDOWN", "CLUSTERDOWN", "READONLY", "NOREPLICAS", "BUSY ", "ERR max number of clients", "MISCONF", "OOM")(err)
}
