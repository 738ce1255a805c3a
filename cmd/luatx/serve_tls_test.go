package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t: t, dir: t.TempDir()}
	pair, file, _ := a.issue("an authority", nil, nil)
	a.cert, a.key, a.file = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey), file
	return a
}

// issue creates a certificate, signed by another one or by itself, and writes it to files.
func (a authority) issue(name string, parent *x509.Certificate, by *ecdsa.PrivateKey) (pair tls.Certificate, certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	redistest.Must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: parent == nil,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	redistest.Must(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	redistest.Must(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	redistest.Must(a.t, err)
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	redistest.Must(a.t,
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, certFile, keyFile
}

// get sends a request with a client certificate and a token, if given, and returns the status and the server's certificate.
func (a authority) get(url, token string, client *tls.Certificate) (status int, server string, err error) {
	a.t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	cfg.RootCAs.AddCert(a.cert)
	if client != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return client, nil }
	}
	status, state, err := ask(a.t, http.MethodGet, url, token, "", cfg)
	if err != nil {
		return 0, "", err
	}
	return status, state.PeerCertificates[0].Subject.CommonName, nil
}

func TestServeAcceptsListedClientCertificatesOverTLS(t *testing.T) {
	t.Parallel()
	s, ca := newSite(t, redistest.Shared(t).Addr()), newAuthority(t)
	_, certFile, keyFile := ca.issue("server", ca.cert, ca.key)
	alice, _, _ := ca.issue("alice", ca.cert, ca.key)
	mallory, _, _ := ca.issue("mallory", ca.cert, ca.key)
	stranger, _, _ := newAuthority(t).issue("alice", nil, nil)
	const secret = "0123456789abcdef"
	file := filepath.Join(ca.dir, "tokens")
	redistest.Must(t, os.WriteFile(file, []byte("alice view certificate\nbob view+payloads "+secret+"\n"), 0o600))
	url, password, stop := s.served("--tls-cert", certFile, "--tls-key", keyFile, "--client-ca", ca.file, "--token-file", file)
	if password != "" || url[:8] != "https://" {
		t.Errorf("it prints %s and the password %q", url, password)
	}
	for name, c := range map[string]struct {
		path, token string
		client      *tls.Certificate
		want        int // 0 if there is no connection
	}{
		"a listed certificate":                {"api/openapi.json", "", &alice, 200},
		"another certificate":                 {"api/openapi.json", "", &mallory, 401},
		"another certificate with a token":    {"api/openapi.json", secret, &mallory, 200},
		"a right to payloads":                 {"api/parked/export", secret, &mallory, 200},
		"no certificate, with a token":        {"api/openapi.json", secret, nil, 403},
		"a probe without a certificate":       {"livez", "", nil, 200},
		"a certificate of another authority":  {"api/openapi.json", "", &stranger, 0},
		"a certificate for too great a right": {"api/parked/export", "", &alice, 403},
	} {
		if status, _, err := ca.get(url+c.path, c.token, c.client); status != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s: %d, %v; want %d", name, status, err, c.want)
		}
	}
	_, renewedFile, renewedKey := ca.issue("renewed", ca.cert, ca.key)
	for from, to := range map[string]string{renewedKey: keyFile, renewedFile: certFile} {
		redistest.Must(t, os.Rename(from, to))
	}
	redistest.Eventually(t, "the renewed certificate", func() bool {
		_, name, err := ca.get(url+"livez", "", nil)
		return err == nil && name == "renewed"
	})
	stop()
}

func TestServeRejectsIncompleteTLS(t *testing.T) {
	t.Parallel()
	s, ca := newSite(t, redistest.Shared(t).Addr()), newAuthority(t)
	file := filepath.Join(ca.dir, "tokens")
	redistest.Must(t, os.WriteFile(file, []byte("alice view certificate\n"), 0o600))
	for want, words := range map[string][]string{
		"--tls-key":          {"--tls-cert", ca.file},
		"--client-ca needs":  {"--client-ca", ca.file},
		"no such file":       {"--tls-cert", ca.file + "x", "--tls-key", ca.file + "x"},
		"set --client-ca":    {"--token-file", file},
		"--max-connections":  {"--max-connections", "1"},
		"no PEM certificate": {"--tls-cert", ca.file, "--tls-key", filepath.Join(ca.dir, "an authority.key"), "--client-ca", file},
	} {
		s.has(s.run(2, "", append([]string{"serve", "--as", "alice", "--listen", "127.0.0.1:0"}, words...)...), want)
	}
}
