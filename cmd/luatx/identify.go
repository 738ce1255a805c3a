package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/luatx/luatx/admin/httpapi"
)

// certificate is the third word of a line that grants access to the holder of a client certificate.
const certificate = "certificate"

// identities are the known users, by secrets or by the common names of client certificates.
type identities struct {
	tokens       map[string]httpapi.Identity // by secret
	certificates map[string]httpapi.Identity
}

// readIdentities reads token files.
func readIdentities(files []string) (identities, error) {
	all := identities{tokens: map[string]httpapi.Identity{}, certificates: map[string]httpapi.Identity{}}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return all, fmt.Errorf("--token-file: %w", err)
		}
		lines := bufio.NewScanner(file)
		for n := 1; lines.Scan(); n++ {
			if err := all.add(lines.Text()); err != nil {
				_ = file.Close() // the file was only read
				return all, fmt.Errorf("--token-file %s: line %d: %w", name, n, err)
			}
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return all, fmt.Errorf("--token-file %s: %w", name, err)
		}
	}
	return all, nil
}

// add parses a line of a token file, which may be empty.
func (all *identities) add(line string) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		return nil
	case len(words) != 3:
		return fmt.Errorf("the line has %d words; use NAME ACCESS SECRET", len(words))
	}
	access, payloads := strings.CutSuffix(words[1], "+payloads")
	may, err := parseAccess(access)
	if err != nil {
		return err
	}
	who := httpapi.Identity{Name: words[0], May: may, Payloads: payloads}
	if words[2] != certificate {
		if owner, taken := all.tokens[words[2]]; taken {
			return fmt.Errorf("%q and %q have the same secret; use different secrets", who.Name, owner.Name)
		}
		all.tokens[words[2]] = who
		return nil
	}
	if _, taken := all.certificates[who.Name]; taken {
		return fmt.Errorf("the certificate of %q occurs twice; remove one line", who.Name)
	}
	all.certificates[who.Name] = who
	return nil
}

// parseAccess parses view, retry or purge.
func parseAccess(text string) (httpapi.Access, error) {
	for _, a := range []httpapi.Access{httpapi.MayView, httpapi.MayRetry, httpapi.MayPurge} {
		if text == a.String() {
			return a, nil
		}
	}
	return 0, fmt.Errorf("the access %q does not exist; use view, retry or purge", text)
}

// errNoCertificate is the error for clients without a certificate of --client-ca.
var errNoCertificate = errors.New("the client has no certificate of --client-ca")

// authorizer returns a function that identifies the user of a request. If certified is set, each request needs a verified
// client certificate.
func (all identities) authorizer(certified bool) (func(*http.Request) (httpapi.Identity, error), error) {
	byToken := func(*http.Request) (httpapi.Identity, error) { return httpapi.Identity{}, httpapi.ErrUnknown }
	if len(all.certificates) > 0 && !certified {
		return nil, errors.New("--token-file has a certificate; set --client-ca too")
	}
	if len(all.tokens) > 0 || len(all.certificates) == 0 {
		var err error
		if byToken, err = httpapi.Tokens(all.tokens); err != nil {
			return nil, err
		}
	}
	return func(r *http.Request) (httpapi.Identity, error) {
		if certified {
			if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
				return httpapi.Identity{}, errNoCertificate
			}
			if who, ok := all.certificates[r.TLS.VerifiedChains[0][0].Subject.CommonName]; ok {
				return who, nil
			}
		}
		return byToken(r)
	}, nil
}

// tlsConfig returns nil without --tls-cert.
func (o serveOptions) tlsConfig() (*tls.Config, error) {
	switch {
	case o.cert == "" && o.key == "" && o.clientCA == "":
		return nil, nil //nolint:nilnil // it serves without TLS
	case o.cert == "" || o.key == "":
		return nil, errors.New("--tls-cert or --tls-key is missing; set both, --client-ca needs them")
	}
	pair := &keyPair{cert: o.cert, key: o.key}
	if _, err := pair.current(nil); err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.current}
	if o.clientCA != "" {
		text, err := os.ReadFile(o.clientCA)
		if err != nil {
			return nil, fmt.Errorf("--client-ca: %w", err)
		}
		cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven // probes have no certificate
		if !cfg.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--client-ca %s: the file has no PEM certificate", o.clientCA)
		}
	}
	return cfg, nil
}

// keyPair is a certificate and its key, which are read again when the certificate's file changes.
type keyPair struct {
	cert, key string

	mu     sync.Mutex
	loaded *tls.Certificate
	from   time.Time // of the certificate's file
}

// current implements tls.Config.GetCertificate. If new files cannot be read, it returns the old certificate.
func (p *keyPair) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	about, err := os.Stat(p.cert)
	if err == nil && p.loaded != nil && about.ModTime().Equal(p.from) {
		return p.loaded, nil
	}
	if err == nil {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(p.cert, p.key); err == nil {
			p.loaded, p.from = &pair, about.ModTime()
		}
	}
	if p.loaded == nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	return p.loaded, nil
}
