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
	// ErrStarted says that Run was called before. A Runtime runs once.
	ErrStarted = errors.New("trigger: already started")
	// ErrOption is any OptionError that lies in the options alone: nobody was asked yet.
	ErrOption = errors.New("wrong option")
	// ErrAuth says that the server refuses name or password.
	ErrAuth = errors.New("authentication failed")
	// ErrDenied says that the user may not do what the trigger needs.
	ErrDenied = errors.New("permission denied")
	// ErrTLS says that the two sides do not trust each other, or do not both speak TLS.
	ErrTLS = errors.New("no TLS connection")
	// ErrUnreachable says that nobody answers at the address, or that the server is not ready.
	ErrUnreachable = errors.New("server out of reach")
	// ErrWrongType says that the key is no stream.
	ErrWrongType = errors.New("not a stream")
)

// OptionError is why a trigger could not begin. It never holds a secret.
type OptionError struct {
	// Option is the field of Config to look at, such as "Connector.Password".
	Option string
	// Remedy says what to do.
	Remedy string
	// Err is the cause; errors.Is finds one of the sentinels in it.
	Err error
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("trigger: option %s: %v: %s", e.Option, e.Err, e.Remedy)
}

// Unwrap makes errors.Is find the cause.
func (e *OptionError) Unwrap() error { return e.Err }

func wrong(option, remedy string) error {
	return &OptionError{Option: option, Remedy: remedy, Err: ErrOption}
}

// causes tell the option behind an error of the first connection, in the order they are tried.
var causes = []struct {
	kind           error
	option, remedy string
	is             func(error) bool
}{
	{ErrAuth, "Connector.Password", "use the name and the password that the server knows, in the URL or beside it", replies("WRONGPASS", "NOAUTH", "ERR invalid password", "ERR AUTH", "ERR Client sent AUTH")},
	{ErrDenied, "Connector.Username", "grant the user what docs/trigger.md lists, on these keys and channels", replies("NOPERM")},
	{ErrWrongType, "Stream", "name the key of a stream, or of nothing yet", replies("WRONGTYPE")},
	{ErrUnreachable, "Connector.Cluster", "set it for a cluster, and only for one", replies("MOVED", "CROSSSLOT", "ERR This instance has cluster support disabled")},
	{ErrTLS, "Connector.TLS", "trust the CA of the server, show a certificate that it trusts, and use rediss:// where it speaks TLS", isTLS},
	{ErrUnreachable, "Connector.URL", "check host and port, that the server is up, and whether it speaks TLS there", isNetwork},
}

// explain names the option behind an error of the first connection.
func explain(err error) error {
	if _, ok := errors.AsType[*OptionError](err); ok {
		return err
	}
	for _, c := range causes {
		if c.is(err) {
			return &OptionError{Option: c.option, Remedy: c.remedy, Err: fmt.Errorf("%w: %w", c.kind, err)}
		}
	}
	return &OptionError{Option: "Connector", Remedy: "see the error of the server", Err: err}
}

// replies tells replies of a server by how they begin.
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

// isNetwork is true for what comes from no server, or from one that is not ready.
func isNetwork(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return !group.IsReply(err) || replies("LOADING", "MASTERDOWN", "CLUSTERDOWN", "READONLY", "NOREPLICAS", "BUSY ", "ERR max number of clients", "MISCONF", "OOM")(err)
}
