package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/luatx/luatx/admin"
)

var serveVerb = verb{
	name: "serve", acts: true, limited: true, retaining: true, short: "the console and the HTTP API, until it is interrupted",
	long: `luatx serve serves the console and the HTTP API of the operator (docs/console.md). It listens for this machine alone unless a
token file says who else may come. Each of its lines names one: NAME ACCESS SECRET, where ACCESS is view, retry or purge and
SECRET has 16 bytes or more; empty lines and those that begin with # say nothing. The secret comes as a bearer token, or as
the password that a browser asks for. Without --retention neither check nor fix is offered.`,
	flags: func(flags *flag.FlagSet) action {
		var o serveOptions
		flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` to listen at; one that others reach needs a --token-file")
		flags.BoolVar(&o.readOnly, "read-only", false, "let nobody do more than look")
		flags.StringVar(&o.title, "title", "", "name of the environment (default the namespace)")
		list := func(into *[]string) func(string) error {
			return func(text string) error { *into = append(*into, text); return nil }
		}
		flags.Func("token-file", "`file` of tokens; may be said again", list(&o.tokenFiles))
		flags.Func("stream", "`key` of a stream to show; may be said again", list(&o.streams))
		return func(ctx context.Context, s *session, _ []string) error { return s.serve(ctx, o) }
	},
}

type serveOptions struct {
	listen, title       string
	readOnly            bool
	tokenFiles, streams []string
}

const (
	// headerTimeout bounds the time for the head of a request, endServe that for what is under way at the end.
	headerTimeout = 10 * time.Second
	endServe      = 5 * time.Second
)

func (s *session) serve(ctx context.Context, o serveOptions) error {
	log := slog.New(slog.NewTextHandler(s.std.err, nil))
	cfg := admin.HandlerConfig{ReadOnly: o.readOnly, NoRepair: s.retention <= 0, Title: o.title, Streams: o.streams, Logger: log}
	var err error
	if len(o.tokenFiles) > 0 {
		if cfg.Authorize, err = authorizer(o.tokenFiles); err != nil {
			return usageError{err}
		}
	} else if !forThisMachine(o.listen) {
		return usageError{fmt.Errorf("--listen %s: others reach it: say who may come with --token-file, or listen at 127.0.0.1", o.listen)}
	}
	handler, err := admin.NewHandler(s.operator, cfg)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return usageError{fmt.Errorf("--listen: %w", err)}
	}
	s.out.row(map[string]string{"url": "http://" + listener.Addr().String() + "/"}, "URL", "http://"+listener.Addr().String()+"/")
	if err := s.out.flush(); err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return serveUntil(ctx, server, listener, handler)
}

// serveUntil serves until ctx ends, and ends what is under way.
func serveUntil(ctx context.Context, server *http.Server, listener net.Listener, handler *admin.Handler) error {
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
		err = server.Close() // what is still under way is broken off
	}
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(failed, err)
	}
	return errors.Join(err, <-ran)
}

// forThisMachine reports whether nobody else reaches an address.
func forThisMachine(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// authorizer reads files of tokens.
func authorizer(files []string) (func(*http.Request) (admin.Identity, error), error) {
	var tokens []admin.Token
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		lines := bufio.NewScanner(file)
		for n := 1; lines.Scan(); n++ {
			token, ok, err := parseToken(lines.Text())
			if err != nil {
				_ = file.Close() // it was only read
				return nil, fmt.Errorf("--token-file %s: line %d: %w", name, n, err)
			}
			if ok {
				tokens = append(tokens, token)
			}
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return nil, fmt.Errorf("--token-file %s: %w", name, err)
		}
	}
	return admin.Tokens(tokens...)
}

// parseToken reads a line of a token file, which may say nothing.
func parseToken(line string) (token admin.Token, ok bool, err error) {
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		return token, false, nil
	case len(words) != 3:
		return token, false, fmt.Errorf("it has %d words: use NAME ACCESS SECRET", len(words))
	}
	may, err := admin.ParseAccess(words[1])
	return admin.Token{Secret: words[2], Identity: admin.Identity{Name: words[0], May: may}}, true, err
}
