package command

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// form describes how the other arguments change a command: how it is undone, whether its reply decides, which of its
// forms are refused, and where its keys stand if no server reports their positions.
type form struct {
	adapt func(Spec, []any) Spec
	check func([]any) error
	find  func([]any) (keys, changed []int, err error)

	// The reply decides if one of the conditions is among the options.
	conditions []string
	options    func(args []any) []any
}

var forms = map[string]form{
	"SET":               {options: after(3), conditions: []string{"NX", "XX", "IFEQ", "IFNE", "IFDEQ", "IFDNE", "GET"}},
	"MSETEX":            {options: msetexOptions, conditions: []string{"NX", "XX"}},
	"DELEX":             {options: after(2), conditions: []string{"IFEQ", "IFNE", "IFDEQ", "IFDNE"}},
	"EXPIRE":            expiryForm,
	"PEXPIRE":           expiryForm,
	"EXPIREAT":          expiryForm,
	"PEXPIREAT":         expiryForm,
	"HEXPIRE":           fieldExpiryForm,
	"HPEXPIRE":          fieldExpiryForm,
	"HEXPIREAT":         fieldExpiryForm,
	"HPEXPIREAT":        fieldExpiryForm,
	"HSETEX":            {options: between(2, "FIELDS"), conditions: []string{"NX", "XX", "FNX", "FXX"}},
	"ZADD":              {adapt: zadd, options: zaddOptions, conditions: zaddWords},
	"GEOADD":            {adapt: geoadd, options: geoaddOptions, conditions: geoaddWords},
	"XADD":              {adapt: xadd, options: xaddFlags, conditions: []string{"NOMKSTREAM"}},
	"XDELEX":            {options: between(2, "IDS"), conditions: []string{"ACKED"}},
	"XACKDEL":           {options: between(3, "IDS"), conditions: []string{"ACKED"}},
	"COPY":              {check: checkCopy},
	"SORT":              {adapt: storing, check: checkSort, find: sortKeys},
	"SORT_RO":           {check: checkSort, find: firstKey},
	"GEORADIUS":         {adapt: storing, find: radiusKeys},
	"GEORADIUSBYMEMBER": {adapt: storing, find: radiusKeys},
	"XREAD":             {check: checkStreams, find: streamKeys(false)},
	"XREADGROUP":        {check: checkStreams, find: streamKeys(true)},
}

// skip returns the position of the first argument, from i on, that is not one of the options.
func skip(args []any, i int, options ...string) int {
next:
	for ; i < len(args); i++ {
		for _, option := range options {
			if strings.EqualFold(word(args[i]), option) {
				continue next
			}
		}
		return i
	}
	return i
}

// The undo classes that depend on the arguments.
const (
	scores   = "z0z1z2z3z4z5z6z7z8z9"
	places   = "g0g1g2g3g4g5g6g7g8g9"
	plainAdd = "x0"
)

// digit returns the class with a digit for the position. With 0, the script looks for the first member itself.
func digit(classes string, at int) string {
	if at > 9 {
		at = 0
	}
	return classes[2*at : 2*at+2]
}

func zadd(s Spec, args []any) Spec {
	s.Undo = digit(scores, skip(args, 2, zaddWords...)+1)
	return s
}

func geoadd(s Spec, args []any) Spec {
	s.Undo = digit(places, skip(args, 2, geoaddWords...)+2)
	return s
}

// xadd recognizes the plain form, XADD key [MAXLEN [=|~] count] * field value …. This form cannot fail if the key is a
// stream or is absent.
func xadd(s Spec, args []any) Spec {
	i := 2
	if len(args) > 3 && strings.EqualFold(word(args[2]), "MAXLEN") {
		i = skip(args, 3, "=", "~")
		count, err := int64(-1), error(nil)
		if i < min(len(args), 5) {
			count, err = strconv.ParseInt(word(args[i]), 10, 64)
		}
		if err != nil || count < 0 {
			return s
		}
		i++
	}
	if fields := len(args) - i - 1; fields >= 2 && fields%2 == 0 && word(args[i]) == "*" {
		s.Undo = plainAdd
	}
	return s
}

func checkCopy(args []any) error {
	for i := 3; i < len(args); i++ {
		if strings.EqualFold(word(args[i]), "DB") {
			return errors.New("COPY DB: " + database)
		}
	}
	return nil
}

// checkSort parses the options as the server does, so that no option hides a key.
func checkSort(args []any) error {
	_, err := sortStore(args)
	return err
}

// sortStore returns the position of the key that a SORT stores into, or 0.
func sortStore(args []any) (int, error) {
	store := 0
	for i := 2; i < len(args); i++ {
		option := strings.ToUpper(word(args[i]))
		switch option {
		case "ASC", "DESC", "ALPHA":
		case "LIMIT":
			i += 2
		case "STORE": // the server also uses the last STORE
			i++
			store = i
		case "BY", "GET":
			return 0, fmt.Errorf("%.40v %s: it reads keys that are not arguments of the command; sort without it", args[0], option)
		default:
			return 0, fmt.Errorf("%.40v: argument %d is not an option of this command", args[0], i)
		}
	}
	if store >= len(args) {
		return 0, fmt.Errorf("%.40v: STORE without a key", args[0])
	}
	return store, nil
}

func sortKeys(args []any) (keys, changed []int, err error) {
	store, err := sortStore(args)
	if err != nil {
		return nil, nil, err
	}
	if store == 0 {
		return every[:1:1], nil, nil
	}
	return []int{1, store}, []int{store}, nil
}

// radiusKeys finds every STORE and STOREDIST, although the server uses only the last one.
func radiusKeys(args []any) (keys, changed []int, err error) {
	for i := 5; i < len(args)-1; i++ {
		if option := word(args[i]); strings.EqualFold(option, "STORE") || strings.EqualFold(option, "STOREDIST") {
			i++
			changed = append(changed, i)
		}
	}
	return append(every[:1:1], changed...), changed, nil
}

func firstKey([]any) (keys, changed []int, err error) { return every[:1:1], nil, nil }

// storing returns the form of a command that changes a key only if it stores its result.
func storing(s Spec, args []any) Spec {
	if _, changed, err := s.find(args); err == nil && changed == nil {
		s.Undo, s.Decides, s.Guard = none, true, GuardOrdered
	}
	return s
}

// checkStreams returns an error for BLOCK.
func checkStreams(args []any) error {
	_, err := streams(args)
	return err
}

// streams returns the position of the first stream of an XREAD or XREADGROUP.
func streams(args []any) (int, error) {
	for i := 1; i < len(args); i++ {
		switch strings.ToUpper(word(args[i])) {
		case "COUNT", "CLAIM":
			i++
		case "GROUP":
			i += 2
		case "NOACK":
		case "BLOCK":
			return 0, fmt.Errorf("%.40v BLOCK: %s", args[0], blocks)
		case "STREAMS":
			if n := len(args) - i - 1; n == 0 || n%2 != 0 {
				return 0, fmt.Errorf("%.40v: the numbers of streams and ids differ", args[0])
			}
			return i + 1, nil
		default:
			return 0, fmt.Errorf("%.40v: argument %d is not an option of this command", args[0], i)
		}
	}
	return 0, fmt.Errorf("%.40v: STREAMS is missing", args[0])
}

func streamKeys(changes bool) func([]any) (keys, changed []int, err error) {
	return func(args []any) (keys, changed []int, err error) {
		first, err := streams(args)
		if err != nil {
			return nil, nil, err
		}
		keys = span{first, first + (len(args)-first)/2 - 1, 1}.positions(math.MaxInt)
		if changes {
			changed = keys
		}
		return keys, changed, nil
	}
}
