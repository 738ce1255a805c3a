package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/console"
	"github.com/luatx/luatx/admin/httpapi"
)

var serveVerb = verb{
	name: "serve", needs: newService, acts: true, unnamed: true, limited: true, retaining: true, short: "serve the console and the HTTP API until interrupted",
	long: `luatx serve serves the console and the HTTP API of the operator (docs/console.md). Without a token file it listens on this machine
only and prints a password. Everyone with that password has all rights, and acts in the name of --as.

A token file lists the users, one per line: NAME ACCESS SECRET. ACCESS is view, retry or purge, followed by +payloads for the right
to read and export payloads. SECRET has at least 16 bytes. Clients send it as a bearer token, or as the password that a browser asks
for. If SECRET is the word certificate, NAME is the common name of a client certificate. Empty lines and lines that begin with # are
ignored.

Failed logins are throttled. With --client-ca every client needs a certificate, except for the probes livez and readyz. Without
--retention the console and the API offer neither checks nor repairs of the shards.`,
	flags: func(flags *flag.FlagSet) action {
		var o serveOptions
		flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` to listen on; an address that other machines can reach requires --token-file")
		flags.BoolVar(&o.readOnly, "read-only", false, "allow only reads")
		flags.StringVar(&o.title, "title", "", "name of the environment (default the namespace)")
		list := func(into *[]string) func(string) error {
			return func(text string) error { *into = append(*into, text); return nil }
		}
		flags.StringVar(&o.cert, "tls-cert", "", "`file` of the TLS certificate, which is reloaded when it changes")
		flags.StringVar(&o.key, "tls-key", "", "`file` of the key of the TLS certificate")
		flags.StringVar(&o.clientCA, "client-ca", "", "`file` of the certificate authorities of client certificates; every client then needs a certificate")
		flags.IntVar(&o.connections, "max-connections", 128, "maximum number of connections, half of them for one client address; slow clients are disconnected first")
		flags.Func("destination", "`destination` that events may be re-armed to; may be repeated (default: those in $LUATX_DESTINATIONS, separated by commas)", list(&o.destinations))
		flags.Func("token-file", "`file` of tokens; may be repeated", list(&o.tokenFiles))
		flags.Func("stream", "`key` of a stream to show; may be repeated", list(&o.streams))
		return func(ctx context.Context, s *session, _ []string) error { return s.serve(ctx, o) }
	},
}

type serveOptions struct {
	listen, title                     string
	cert, key, clientCA               string
	readOnly                          bool
	connections                       int
	tokenFiles, streams, destinations []string
}

// endServe bounds the time for running requests at the end.
const endServe = 5 * time.Second

func (s *session) serve(ctx context.Context, o serveOptions) error {
	log := slog.New(slog.NewTextHandler(s.std.err, nil))
	cfg := httpapi.Config{Console: console.New, ReadOnly: o.readOnly, NoRepair: s.retention <= 0, Title: o.title, Streams: o.streams, Logger: log}
	password, err := s.authorize(o, &cfg)
	if err != nil {
		return usageError{err}
	}
	secure, err := o.tlsConfig()
	if err != nil {
		return usageError{err}
	}
	operator, err := admin.NewOperator(s.transactor, admin.OperatorConfig{
		Client: s.client, Name: cmp.Or(s.as, "luatx"), Destinations: anyOf(slices.Concat(o.destinations, environmentDestinations())),
	})
	if err != nil {
		return err
	}
	handler, err := httpapi.New(operator, cfg)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return usageError{fmt.Errorf("--listen: %w", err)}
	}
	scheme := "http"
	listener = newGate(listener, o.connections)
	if secure != nil {
		scheme, listener = "https", tls.NewListener(listener, secure)
	}
	s.announce(scheme+"://"+listener.Addr().String()+"/", password)
	if err := s.out.flush(); err != nil {
		return errors.Join(err, listener.Close())
	}
	server := cfg.Server(watched(handler))
	server.ConnContext, server.ErrorLog = remember, slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	return serveUntil(ctx, server, listener, handler)
}

// authorize sets the authorization in cfg. It returns a password if there is no token file.
func (s *session) authorize(o serveOptions, cfg *httpapi.Config) (password string, err error) {
	if o.connections < 2 {
		return "", fmt.Errorf("--max-connections is %d; use 2 or more", o.connections)
	}
	all, err := readIdentities(o.tokenFiles)
	if err != nil {
		return "", err
	}
	if len(o.tokenFiles) == 0 {
		switch {
		case !forThisMachine(o.listen):
			return "", fmt.Errorf("--listen %s is reachable from other machines; set --token-file, or listen on 127.0.0.1", o.listen)
		case s.as == "":
			return "", errAs
		}
		password = rand.Text()
		all.tokens[password] = httpapi.Identity{Name: s.as, May: httpapi.MayPurge, Payloads: true}
	}
	cfg.Authorize, err = all.authorizer(o.clientCA != "")
	return password, err
}

// announce prints the URL of the console, and the password if there is no token file.
func (s *session) announce(url, password string) {
	if password == "" {
		s.out.row(map[string]string{"url": url}, "URL", url)
		return
	}
	s.out.row(map[string]string{"url": url, "password": password}, "URL PASSWORD", url, password)
}

// environmentDestinations returns the destinations in LUATX_DESTINATIONS.
func environmentDestinations() []string {
	return strings.FieldsFunc(os.Getenv("LUATX_DESTINATIONS"), func(r rune) bool { return r == ',' })
}

// anyOf accepts the given destinations, or any if none is given.
func anyOf(destinations []string) func(string) error {
	if len(destinations) == 0 {
		return nil
	}
	return func(destination string) error {
		if !slices.Contains(destinations, destination) {
			return errors.New("allow it with LUATX_DESTINATIONS, or with --destination of luatx serve")
		}
		return nil
	}
}

// serveUntil serves until ctx ends, and then ends the running requests.
func serveUntil(ctx context.Context, server *http.Server, listener net.Listener, handler *httpapi.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served, ran := make(chan error, 1), make(chan error, 1)
	go func() {
		defer cancel()
		served <- server.Serve(listener)
	}()
	go func() { ran <- handler.Run(ctx) }()
	<-ctx.Done()
	bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), endServe)
	defer stop()
	err := server.Shutdown(bounded)
	if err != nil {
		err = server.Close() // aborts requests that still run
	}
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(failed, err)
	}
	return errors.Join(err, <-ran)
}

// forThisMachine reports whether an address can only be reached from this machine.
func forThisMachine(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
