package service

import (
	"context"
	"errors"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/repair"
	"github.com/luatx/luatx/stack"
)

// Check reports whether a server can be reached.
type Check func(ctx context.Context) error

// Service runs the pieces of a service. Run runs it once.
type Service struct {
	cfg        Config
	transactor *luatx.Transactor // nil unless the mode is Scripted
	admin      *httpapi.Handler  // nil: none
	stages     []*stage          // in the order in which they stop
	mux        http.ServeMux
	progress
}

// New makes a Service of its handlers. It does no I/O and never closes the client. The client may be nil if Given has all
// pieces that need one. The error names the field that is wrong, or is that of the piece that cannot be made.
func New(client redis.UniversalClient, cfg Config, handlers ...Handler) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.validate(), cfg.checkPartitions()); err != nil {
		return nil, err
	}
	if len(handlers) == 0 {
		return nil, errors.New("service: New needs a handler; add one with Command")
	}
	s := &Service{cfg: cfg}
	s.check = cfg.Given.Check
	if s.check == nil && client != nil {
		s.check = func(ctx context.Context) error { return client.Ping(ctx).Err() }
	}
	mw, err := s.stack(client)
	if err != nil {
		return nil, err
	}
	engine, err := cfg.engine(mw, handlers)
	if err != nil {
		return nil, err
	}
	if err := s.assemble(client, engine); err != nil {
		return nil, err
	}
	s.route()
	return s, nil
}

// Transactor returns the Transactor, nil unless the mode is Scripted.
func (s *Service) Transactor() *luatx.Transactor { return s.transactor }

// stack returns what commits, and makes the Transactor if the mode needs one.
func (s *Service) stack(client redis.UniversalClient) (mw message.Middleware, err error) {
	cfg := &s.cfg
	switch {
	case cfg.Mode == Other:
		return *cfg.Given.Middleware, nil
	case client == nil && (cfg.Mode == Pipelined || cfg.Given.Transactor == nil):
		return mw, errors.New("service: New needs a client")
	case cfg.Mode == Pipelined:
		if *cfg, err = cfg.withOutbox(client); err == nil {
			mw, err = stack.Pipelined(client, cfg.Stack)
		}
	default:
		if s.transactor = cfg.Given.Transactor; s.transactor == nil {
			if s.transactor, err = luatx.New(client, cfg.Transactor); err != nil {
				return mw, err
			}
		}
		mw, err = stack.Scripted(s.transactor, cfg.Stack)
	}
	if cfg.Given.Middleware != nil {
		mw = *cfg.Given.Middleware
	}
	return mw, err
}

// assemble makes the pieces that run, in the stages in which they stop: the pieces that make events, those that publish
// them, and those that show the state of the service.
func (s *Service) assemble(client redis.UniversalClient, engine *message.Engine) error {
	input, err := s.cfg.input(client)
	if err != nil {
		return err
	}
	makers := []piece{{"input", func(ctx context.Context) error { return input.Consume(ctx, s.transactor, engine) }}}
	if s.cfg.Mode == Scripted {
		timers, err := s.upkeep()
		if err != nil {
			return err
		}
		makers = append(makers, timers...)
	}
	var publishing, watching []piece
	events, err := s.cfg.relay(client, s.transactor)
	if err != nil {
		return err
	}
	if events != nil {
		publishing = append(publishing, piece{"relay", events.Run})
	}
	if s.cfg.Admin != nil {
		if err := s.addAdmin(client); err != nil {
			return err
		}
		watching = append(watching, piece{"admin", s.admin.Run})
	}
	if s.cfg.Addr != "" {
		watching = append(watching, piece{"http", s.serve})
	}
	t := s.cfg.ShutdownTimeout
	s.stages = []*stage{{pieces: makers, until: t * 3 / 4}, {pieces: publishing, until: t * 19 / 20}, {pieces: watching, until: t}}
	return nil
}

// upkeep returns the timers and the repair.
func (s *Service) upkeep() (pieces []piece, err error) {
	if s.cfg.Timers.Event != nil {
		store := s.cfg.Given.Timers
		if store == nil {
			if store, err = expiry.New(s.transactor, expiry.Config{}); err != nil {
				return nil, err
			}
		}
		worker, err := expiry.NewWorker(store, s.cfg.Timers)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, piece{"timers", worker.Run})
	}
	if !s.cfg.NoRepair {
		worker, err := repair.New(s.transactor, s.cfg.Repair)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, piece{"repair", worker.Run})
	}
	return pieces, nil
}

func (s *Service) addAdmin(client redis.UniversalClient) error {
	operator, err := admin.NewOperator(s.transactor, admin.OperatorConfig{Client: client, Name: s.cfg.Namespace})
	if err != nil {
		return err
	}
	cfg := *s.cfg.Admin
	if cfg.Logger == nil {
		cfg.Logger = s.cfg.Logger
	}
	s.admin, err = httpapi.New(operator, cfg)
	return err
}
