package command

import (
	"slices"
	"strconv"
	"strings"
)

// The options that make a write depend on the current value. The lists for ZADD and GEOADD contain all their options:
// CH and INCR are not conditions, but they change what the reply counts.
var (
	zaddWords   = []string{"NX", "XX", "GT", "LT", "CH", "INCR"}
	geoaddWords = []string{"NX", "XX", "CH"}
	expiryWords = []string{"NX", "XX", "GT", "LT"}

	expiryForm      = form{options: after(3), conditions: expiryWords}
	fieldExpiryForm = form{options: between(3, "FIELDS"), conditions: expiryWords}
)

// Conditions returns the options that make the reply of a command decide.
func Conditions(name string) []string { return slices.Clone(forms[name].conditions) }

// adapting returns the function that gives a command the form that its arguments select, or nil if it has only one
// form.
func (f form) adapting() func(Spec, []any) Spec {
	if f.conditions == nil {
		return f.adapt
	}
	return func(s Spec, args []any) Spec {
		if f.adapt != nil {
			s = f.adapt(s, args)
		}
		s.Decides = s.Decides || f.decidesWith(args)
		return s
	}
}

// decidesWith reports whether one of the form's conditions is among the arguments.
func (f form) decidesWith(args []any) bool {
	for _, option := range f.options(args) {
		name := word(option)
		for _, condition := range f.conditions {
			if strings.EqualFold(name, condition) {
				return true
			}
		}
	}
	return false
}

// after returns a function that returns the arguments from a position on.
func after(from int) func([]any) []any {
	return func(args []any) []any { return args[min(from, len(args)):] }
}

// between returns a function that returns the arguments from a position up to the word that begins a list of fields or
// ids.
func between(from int, list string) func([]any) []any {
	return func(args []any) []any {
		rest := args[min(from, len(args)):]
		for i, arg := range rest {
			if strings.EqualFold(word(arg), list) {
				return rest[:i]
			}
		}
		return rest
	}
}

func zaddOptions(args []any) []any { return leading(args, zaddWords) }

func geoaddOptions(args []any) []any { return leading(args, geoaddWords) }

// leading returns the options that stand between the key and the first member.
func leading(args []any, options []string) []any {
	rest := args[min(2, len(args)):]
	return rest[:skip(rest, 0, options...)]
}

// msetexOptions returns the arguments after the last pair of key and value.
func msetexOptions(args []any) []any {
	if len(args) < 2 {
		return nil
	}
	pairs, err := strconv.Atoi(word(args[1]))
	if err != nil || pairs < 0 || pairs > len(args) {
		return nil // Keys returns the error
	}
	return args[min(2+2*pairs, len(args)):]
}

// xaddFlags returns the NOMKSTREAM of an XADD. It skips the values of other options, because such a value may be the
// same word.
func xaddFlags(args []any) []any {
	for i := 2; i < len(args); i++ {
		switch strings.ToUpper(word(args[i])) {
		case "NOMKSTREAM":
			return args[i : i+1]
		case "KEEPREF", "DELREF", "ACKED":
		case "MAXLEN", "MINID":
			i = skip(args, i+1, "=", "~")
		case "LIMIT", "IDMPAUTO":
			i++
		case "IDMP":
			i += 2
		default: // the id
			return nil
		}
	}
	return nil
}
