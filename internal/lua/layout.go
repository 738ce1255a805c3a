package lua

import (
	"slices"
	"strconv"
	"strings"
)

// The codes of a plan's commands and of the heads and bodies of events. See _undo.lua, _events.lua and commit.lua.
const (
	HashFields     = 'h' // HSET and its like: every second argument is a field
	ChangedString  = 'i' // a string that is changed, such as by INCR
	ReplacedString = 'k' // a string that is replaced, such as by SET
	NoUndo         = '-' // a command that changes nothing
	Appended       = 'x' // XADD with the id *
	KeysAt         = 'm' // the keys at given positions, which the undo copies whole
	Procedure      = 'p' // a procedure of the configuration

	Ordered   = 'k' // an event with an ordering key
	Scheduled = 'a' // an event with a time

	GivenMark  = '+' // leads the body of an event whose id the caller gave
	SentMark   = '=' // leads the SHA-1 of a body that was sent
	ErasedMark = '!' // leads the SHA-1 of a body that an operator erased
	StagedMark = '~' // leads the size, the SHA-1 and the name of a body in a key of its own
)

var codes = map[string]string{
	"HASH_FIELDS": code(HashFields), "CHANGED_STRING": code(ChangedString), "REPLACED_STRING": code(ReplacedString),
	"NO_UNDO": code(NoUndo), "APPENDED": code(Appended), "KEYS_AT": code(KeysAt), "PROCEDURE": code(Procedure),
	"ORDERED": code(Ordered), "SCHEDULED": code(Scheduled), "GIVEN_MARK": code(GivenMark), "SENT_MARK": code(SentMark),
	"ERASED_MARK": code(ErasedMark), "STAGED_MARK": code(StagedMark),
	"DIGIT_0": code('0'), "DIGIT_1": code('1'),
	"LEASED":       "10000000000000",   // the end of a lease (ms) minus this is the score of a leased event
	"CLOCK_MARGIN": "60000",            // ms by which a server's clock may be behind after a failover
	"TWO_53":       "9007199254740992", // from here on a Lua number does not hold every integer
	"IDLE":         "1125899906842624", // a mark of the bytes of the outbox, see _bytes.lua
	"HOLDS":        "2251799813685248", // likewise, twice as large
}

func code(c rune) string { return strconv.Itoa(int(c)) }

var (
	commitKeys = []string{"void", "inbox:a", "inbox:b", "entries", "pending", "broken", "counts"}
	timerKeys  = []string{"void", "inbox:a", "due", "entries", "pending", "decided", "counts"}
	outboxKeys = []string{
		"void", "inbox:a", "entries", "pending", "attempts", "errors", "parked", "sent", "seq", "counts",
		"parked:by", "routes", "headers", "lanes",
	}
	pauseKeys = []string{"void", "inbox:a", "pauses"}
	audited   = "audit" // the last key of each script that an operator runs
)

// keys lists the keys of each script in the order in which the script declares them. Keys that a script uses only by name may follow. The
// first key of a shard's script is void, which never exists. While a slot migrates, this missing key makes the cluster return TRYAGAIN
// before the script runs.
var keys = map[string][]string{
	"commit": commitKeys, "enqueue": commitKeys, "resolve": {"void", "inbox:a", "inbox:b", "broken", "positions"}, "probe": {"void", "inbox:a"},

	"claim": outboxKeys, "settle": outboxKeys, "list": outboxKeys, "scheduled": outboxKeys,
	"rearm": with(outboxKeys, audited), "discard": with(outboxKeys, audited), "erase": with(outboxKeys, audited),
	"change": with(outboxKeys, audited),
	"replay": with(outboxKeys, audited), "import": with(outboxKeys, audited),
	"forget": with(outboxKeys, "inbox:b", "results", "results:b", "broken", audited),
	"pause":  with(pauseKeys, audited), "resume": with(pauseKeys, audited), "pauses": {"void", "pauses"}, "unhold": {"void", "pending"},
	"extend": {"void", "pending", "seq"}, "sweep": {"void", "sweep"}, "rights": {"void"},
	"process": {"void", "processes", "heartbeats"}, "history": {"void", "history", "history:10s", "history:15m"},

	"timer": timerKeys, "decide": timerKeys, "revoke": timerKeys, "due": {"void", "inbox:a", "due"},

	"generation": {"void", "inbox:a", "generations"}, "reposition": {"void", "inbox:a", "positions", "broken", audited},

	"turn": {"void", "repair"},
	"repair": {
		"void", "inbox:a", "inbox:b", "results", "results:b", "entries", "pending", "parked", "sent", "attempts", "errors",
		"broken", "seq", "repair", "due", "decided", "headers", "lanes", "routes", "counts", "parked:by", "audit", "sweep", "pauses", "bodies",
		"positions", "generations",
	},

	"acknowledge": {"stream"}, "dismiss": {"stream"}, "fetch": {"stream"}, "hold": {"stream"}, "trim": {"stream"}, "window": {"stream"},
	"putback": {"dead", "stream"}, "dead": {"dead", "stream"}, "deadimport": {"dead"}, "deadletter": {"stream", "dead", "taken"}, "takeover": {"stream", "taken"},
	"lease": {"void", "lease"}, "members": {"void", "members"}, "partition": {"void", "lease", "stream", "taken"},
	"release": {"mark"}, "drop": {"key"},
}

func with(keys []string, more ...string) []string { return append(slices.Clip(keys), more...) }

// Keys returns the names of a script's keys in the order in which it declares them.
func Keys(script string) []string { return keys[script] }

// slot returns the name of a key in a script: INBOX_A for the key inbox:a.
func slot(key string) string { return strings.ToUpper(strings.ReplaceAll(key, ":", "_")) }

func keyAt(i int) string { return "KEYS[" + strconv.Itoa(i+1) + "]" }
