package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/outbox"
)

var auditVerb = verb{
	name: "audit", short: "who did what, when and why",
	flags: func(flags *flag.FlagSet) action {
		since := flags.Duration("since", 24*time.Hour, "how far back")
		return func(ctx context.Context, s *session, _ []string) error {
			for r, err := range s.operator.Audit(ctx, time.Now().Add(-*since)) {
				if err != nil {
					return err
				}
				row := acts.NewRecord(r)
				s.out.row(row, "AT WHO ACT DONE ASKED SLOT WHY", when(row.At), r.Who, r.Act, r.Done, r.Asked, r.Slot, r.Why)
			}
			return nil
		}
	},
}

var tailVerb = verb{
	name: "tail", short: "events as they are parked, and as remembered ones are sent, until interrupted",
	flags: func(flags *flag.FlagSet) action {
		every := flags.Duration("every", time.Second, "how often it looks")
		parked := flags.Bool("parked", false, "parked ones alone")
		limit := flags.Int("limit", 0, "end after so many events (default never)")
		return func(ctx context.Context, s *session, _ []string) error {
			if *every <= 0 {
				return usageError{errors.New("--every is not positive; use more than 0")}
			}
			n := 0
			for e, err := range s.operator.Tail(ctx, *every) {
				if err != nil && e.ID == "" {
					fmt.Fprintf(s.std.err, "luatx tail: %s\n", err)
					continue
				}
				if *parked && e.State != outbox.Parked {
					continue
				}
				s.out.event(e)
				if err := s.out.flush(); err != nil {
					return err
				}
				if n++; n == *limit {
					break
				}
			}
			return nil
		}
	},
}

var repairVerb = verb{
	name: "repair", changes: true, retaining: true, short: "list inconsistencies of the shards, and repair them",
	long: `luatx repair lists inconsistencies of the shards, after keys were lost or changed by hand, and repairs them. --retention
must be Config.Retention of the service: repair removes older ids from the inbox.`,
	one: `if some inconsistency is left`,
	flags: func(*flag.FlagSet) action {
		return func(ctx context.Context, s *session, _ []string) error {
			if s.retention <= 0 {
				return usageError{errors.New("--retention is missing; use Config.Retention of the service, because older ids count as stale")}
			}
			return s.repair(ctx)
		}
	},
}

// repairChunk is the number of shards between two updates of the progress.
const repairChunk = 32

func (s *session) repair(ctx context.Context) error {
	look := s.operator.Fix
	if s.preview {
		look = s.operator.Check
	}
	found, fixed := 0, 0
	var errs []error
	slots := s.transactor.Keyspace().Slots()
	count := s.progress("shards", int64(len(slots)))
	for some := range slices.Chunk(slots, repairChunk) {
		for f, err := range look(ctx, some...) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if found++; f.Fixed {
				fixed++
			}
			if s.json {
				s.out.row(acts.NewFinding(f), "")
			} else {
				s.out.say("%s", f.String())
			}
		}
		count.add(len(some))
		if ctx.Err() != nil {
			break
		}
	}
	count.end()
	s.out.say("%d found, %d settled", found, fixed)
	if s.preview {
		s.plan(found, "settle %s", counted(found, "finding"))
	}
	switch {
	case len(errs) > 0:
		return errors.Join(errs...)
	case found > fixed:
		return reportedError{errors.New("some inconsistency is left")}
	}
	return nil
}

var doctorVerb = verb{
	name: "doctor", needs: aServer, short: "examine the servers, the user's rights and the shards",
	long: `luatx doctor examines every node (version and known flaws of its scripting engine, eviction, persistence, replicas, cluster,
clock), the rights of its own user and, if you name the service's namespace and keyspace, the shards (address, types of keys,
layout). Each finding has a remedy. With --acl it prints a minimal ACL line of a role, and asks the server for its version only.`,
	one: `if there is an error or a warning`,
	flags: func(flags *flag.FlagSet) action {
		role := flags.String("role", string(admin.RoleApplication), "whose rights are needed: app, relay, operator or repair")
		acl := flags.Bool("acl", false, "print a minimal ACL line of the role")
		return func(ctx context.Context, s *session, _ []string) error { return s.doctor(ctx, admin.Role(*role), *acl) }
	},
}

func (s *session) doctor(ctx context.Context, role admin.Role, acl bool) error {
	if !slices.Contains(admin.Roles(), role) {
		return usageError{fmt.Errorf("--role: the role %q does not exist; use one of %v", role, admin.Roles())}
	}
	if acl {
		line, err := s.operator.ACL(ctx, role)
		if err != nil {
			return err
		}
		s.out.row(map[string]string{"role": string(role), "acl": line}, "MINIMAL-ACL", line)
		return nil
	}
	found, err := s.operator.Examine(ctx, admin.Examination{Role: role, NoShards: s.namespace == ""})
	if err != nil {
		return err
	}
	serious := 0
	for _, d := range found {
		if d.Severity != admin.Remark {
			serious++
		}
		if s.json {
			s.out.row(d, "")
			continue
		}
		where := ""
		if d.Node != "" {
			where = " at " + d.Node
		}
		s.out.say("%s: %s%s: %s", string(d.Severity), d.Check, where, d.Text)
		s.out.say("    remedy: %s", d.Remedy)
	}
	if s.namespace == "" {
		s.out.say("the shards were not looked at: say --namespace and --keyspace")
	}
	if serious > 0 {
		return reportedError{fmt.Errorf("%d findings", serious)}
	}
	s.out.say("nothing is wrong")
	return nil
}

func (s *session) plans(ctx context.Context) error {
	scripts := link.Of(s.transactor).Scripts
	found, err := scripts.Plans(ctx, scripts.Shard(s.transactor.Keyspace().Slots()[0]))
	if err != nil {
		return err
	}
	for _, p := range found {
		s.out.row(map[string]any{"hits": p.Hits, "left": p.Left, "sha1": p.Alone, "batch_sha1": p.Batch, "plan": p.Does},
			"HITS LEFT SHA1 BATCH-SHA1 PLAN", p.Hits, p.Left, p.Alone, p.Batch, p.Does)
	}
	if len(found) == 0 {
		s.out.say("no plan is compiled: each is after 100 transactions of its kind, unless Config.NoCompile is set")
	}
	return nil
}

var scriptsVerb = verb{
	name: "scripts", short: "names and SHA1s of the scripts, and whether the server has them",
	long: `luatx scripts lists the scripts of a configuration. Their text holds its constants, so that those of a service with other
limits, or with procedures, have other SHA1s.

With --plans it lists the scripts that the Transactors of the namespace have compiled for plans of transactions, at most in the
last week: how many transactions they have decided (HITS) and left to the general script (LEFT), as of the last 4,096 of each
Transactor, and the SHA1s for one transaction and for several. A large share of LEFT costs the server time; docs/concepts.md
says why it happens.`,
	needs: newService, limited: true,
	flags: func(flags *flag.FlagSet) action {
		plans := flags.Bool("plans", false, "list the compiled scripts of the service")
		return func(ctx context.Context, s *session, _ []string) error {
			if *plans {
				return s.plans(ctx)
			}
			for name, sha := range link.Of(s.transactor).Runner.SHAs() {
				loaded, err := s.client.ScriptExists(ctx, sha).Result()
				if err != nil {
					return err
				}
				s.out.row(map[string]any{"name": name, "sha1": sha, "loaded": loaded[0]}, "NAME SHA1 LOADED", name, sha, loaded[0])
			}
			return nil
		}
	},
}
