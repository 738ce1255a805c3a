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
	name: "audit", short: "show who did what, when and why",
	flags: func(flags *flag.FlagSet) action {
		since := flags.Duration("since", 24*time.Hour, "show records of this last part of the audit")
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
	name: "tail", short: "show events as relays park or send them, until interrupted",
	flags: func(flags *flag.FlagSet) action {
		every := flags.Duration("every", time.Second, "polling interval")
		parked := flags.Bool("parked", false, "show only parked events")
		limit := flags.Int("limit", 0, "exit after this many events (default: never)")
		return func(ctx context.Context, s *session, _ []string) error {
			if *every <= 0 {
				return usageError{errors.New("--every is not positive; use more than 0")}
			}
			n := 0
			for e, err := range s.operator.Tail(ctx, *every) {
				if err != nil && e.ID == "" {
					fmt.Fprintf(s.std.err, "luatx tail: %s\n", oneLine(err))
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
	name: "repair", changes: true, retaining: true, short: "list and repair inconsistencies of the shards",
	long: `luatx repair lists inconsistencies of the shards and repairs them. They appear if keys are lost or changed by hand. --retention
must be Config.Retention of the service, because repair removes older ids from the inbox.`,
	one: `if an inconsistency remains`,
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
		return reportedError{errors.New("some inconsistencies remain")}
	}
	return nil
}

var doctorVerb = verb{
	name: "doctor", needs: aServer, short: "check the servers, the permissions of the user and the shards",
	long: `luatx doctor checks every node (version and known flaws of its scripting engine, eviction, persistence, replicas, cluster,
clock) and the permissions of its own user. If you set the namespace and the keyspace of the service, it also checks the shards
(address, types of keys, layout). Each finding has a remedy. With --acl it prints a minimal ACL line for a role, and reads only
the version of the server.`,
	one: `if it finds an error or a warning`,
	flags: func(flags *flag.FlagSet) action {
		role := flags.String("role", string(admin.RoleApplication), "role whose permissions are required: app, relay, operator, repair or service")
		acl := flags.Bool("acl", false, "print a minimal ACL line for the role")
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
	found, err := s.operator.Examine(ctx, admin.Examination{Role: role, NoShards: !s.named})
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
	if !s.named {
		s.out.say("the shards were not checked; set --namespace and --keyspace to check them")
	}
	if serious > 0 {
		return reportedError{fmt.Errorf("%d findings", serious)}
	}
	s.out.say("no problems found")
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
		s.out.say("no plan is compiled; a plan is compiled after 100 transactions of its kind, unless Config.NoCompile is set")
	}
	return nil
}

var scriptsVerb = verb{
	name: "scripts", short: "list the names and SHA1s of the scripts, and whether the server has them",
	long: `luatx scripts lists the scripts of a configuration. The text of a script contains the limits of the configuration. A service
with other limits, or with procedures, therefore has other SHA1s.

With --plans it lists the scripts that the Transactors of the namespace have compiled for plans of transactions in the last week.
HITS is the number of transactions that a script has decided, and LEFT the number that it has left to the general script, of the
last 4,096 transactions of each Transactor. The SHA1s are those for one transaction and for several. A large share of LEFT costs
CPU time of the server; docs/concepts.md explains the causes.`,
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
