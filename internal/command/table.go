package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// row is the entry of a command in the table.
type row struct {
	spec        Spec
	adapt       func(Spec, []any) Spec // returns the form that the arguments select
	refusal     error
	subcommands rows
}

// rows contains the commands by name, in capitals and in small letters, because go-redis writes both.
type rows map[string]*row

func (r rows) find(name string) *row {
	if found, ok := r[name]; ok {
		return found
	}
	return r[strings.ToUpper(name)]
}

func (r rows) add(name string, one *row) {
	r[name], r[strings.ToLower(name)] = one, one
}

// table contains every command that the server or the policy lists.
var table = func() rows {
	all := make(rows)
	policies, _ := policies()
	for _, f := range slices.Concat(facts, others) {
		p, ok := policies[f.Name]
		if !ok {
			continue // the package's tests and the generator report it
		}
		container, subcommand, isSub := strings.Cut(f.Name, " ")
		if !isSub {
			all.add(f.Name, newRow(f, p))
			continue
		}
		parent := all[container]
		if parent == nil {
			parent = &row{spec: Spec{Name: container}, subcommands: make(rows)}
			all.add(container, parent)
		}
		parent.subcommands.add(subcommand, newRow(f, p))
	}
	return all
}()

func newRow(f Fact, p policy) *row {
	r := &row{spec: Spec{Name: f.Name, Since: f.Since, Group: f.Group, Arity: f.Arity}}
	if p.refusal != "" {
		r.refusal = fmt.Errorf("%s: %s", f.Name, p.refusal)
		return r
	}
	r.spec.Decides, r.spec.Guard, r.spec.Undo = p.decides, p.guard, p.undo
	r.spec.keys, r.spec.changed, r.spec.find = f.finders()
	form := forms[f.Name]
	r.adapt, r.spec.check = form.adapting(), form.check
	if form.find != nil {
		r.spec.find = form.find
	}
	return r
}

// All returns the allowed commands, sorted by name, each in its most general form.
func All() []Spec {
	var all []Spec
	for r := range distinct() {
		if r.refusal == nil {
			all = append(all, r.spec)
		}
	}
	slices.SortFunc(all, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Refusal is a command that a transaction cannot contain, with the reason.
type Refusal struct{ Name, Reason string }

// Refused returns the refused commands, sorted by name.
func Refused() []Refusal {
	var all []Refusal
	for r := range distinct() {
		if r.refusal != nil {
			reason := strings.TrimPrefix(r.refusal.Error(), r.spec.Name+": ")
			all = append(all, Refusal{r.spec.Name, reason})
		}
	}
	slices.SortFunc(all, func(a, b Refusal) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// RefusedForms returns the forms of allowed commands that are refused.
func RefusedForms() []Refusal {
	var all []Refusal
	for _, line := range []string{"COPY a b DB 1", "SORT k BY p", "SORT k GET p", "SORT_RO k BY p", "SORT_RO k GET p", "XREAD BLOCK 0", "XREADGROUP BLOCK 0"} {
		name, _, _ := strings.Cut(line, " ")
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, word)
		}
		if err := forms[name].check(args); err != nil {
			form, reason, _ := strings.Cut(err.Error(), ": ")
			all = append(all, Refusal{form, reason})
		}
	}
	return all
}

// distinct yields each command once, with subcommands instead of their containers.
func distinct() func(yield func(*row) bool) {
	return func(yield func(*row) bool) {
		for name, r := range table {
			if name != strings.ToUpper(name) {
				continue
			}
			if r.subcommands == nil && !yield(r) {
				return
			}
			for name, sub := range r.subcommands {
				if name == strings.ToUpper(name) && !yield(sub) {
					return
				}
			}
		}
	}
}

// Problems returns an error for each mismatch between a server's commands and the policy.
func Problems(facts []Fact) []error {
	var all []error
	policies, twice := policies()
	for _, name := range twice {
		all = append(all, errors.New(name+" has two policies"))
	}
	for _, f := range facts {
		p, ok := policies[f.Name]
		delete(policies, f.Name)
		switch {
		case !ok:
			all = append(all, fmt.Errorf("%s has no policy", f.Name))
		case p.refusal != "":
		case f.Flags&NoScript != 0:
			all = append(all, fmt.Errorf("%s is allowed, but scripts cannot call it", f.Name))
		case f.Flags&Blocking != 0 && forms[f.Name].check == nil:
			all = append(all, fmt.Errorf("%s is allowed, but it blocks", f.Name))
		}
	}
	for _, f := range others {
		delete(policies, f.Name)
	}
	for name := range policies {
		all = append(all, errors.New(name+" has a policy, but is not a command"))
	}
	return all
}

// Policed reports whether the policy has a row for the name.
func Policed(name string) bool {
	policies, _ := policies()
	_, ok := policies[name]
	return ok
}
