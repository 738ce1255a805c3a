package rekey

import (
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
)

func TestRenameFollowsTheMap(t *testing.T) {
	t.Parallel()
	own, shop := luatx.OwnTags(), luatx.OwnTags().WithPrefix("shop")
	for _, c := range []struct {
		template, parts string
		keyspace        luatx.Keyspace
		old, want       string // empty: the key does not match
	}{
		{"account:{id}:{part}", "", own, "account:17:balance", "{17}:balance"},
		{"account:{id}:{part}", "", shop, "account:17:balance", "shop:{17}:balance"},
		{"account:{id}:{part}", "account,{part}", own, "account:17:balance", "{17}:account:balance"},
		{"account:{id}:{part}", "{part},v2", own, "account:17:balance", "{17}:balance:v2"},
		{"account:{id}", "", own, "account:17", "{17}"},
		{"account:{id}", "account", own, "account:17", "{17}:account"},
		{"{kind}:{id}", "", own, "account:17", "{17}:account"},
		{"{kind}:{id}:{a}:{b}", "{b},{kind},{a}", own, "account:17:x:y", "{17}:y:account:x"},
		{"user-{id}-{part}", "", own, "user-a-b-c", "{a}:b-c"},
		{"user-{id}", "", own, "user-3f9-a2", "{3f9-a2}"},
		{"account:{{{id}}}:{part}", "", own, "account:{17}:balance", "{17}:balance"},
		{"account:{id}:{part}", "", own, "account:100%:balance", "{100%25}:balance"},
		{"account:{id}:{part}", "", own, "account:a\nb:x", "{a%0Ab}:x"},
		{"a.c:{id}", "", own, "a.c:1", "{1}"},
		{"a.c:{id}", "", own, "abc:1", ""},
		{"account:{id}:{part}", "", own, "account:17", ""},
		{"account:{id}:{part}", "", own, "account:17:a:b", ""},
		{"account:{id}:{part}", "", own, "account::balance", ""},
		{"account:{id}:{part}", "", own, "account:{17}:balance", ""},
		{"account:{id}:{part}", "", own, "account:17:balance\n", "{17}:balance%0A"},
		{"account:{id}:{part}", "", own, "my:account:17:balance", ""},
		{"account:{id}", "", own, "account:\xff", ""},
		{"account:{id}", "", own, "account:" + strings.Repeat("x", 257), ""},
	} {
		var parts []string
		if c.parts != "" {
			parts = strings.Split(c.parts, ",")
		}
		m, err := ParseMap(c.template, parts...)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		got, err := m.rename(c.keyspace, c.old)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s (%s): %q becomes %q, want %q (%v)", c.template, c.parts, c.old, got, c.want, err)
		}
		if got != "" && !isNamed(c.keyspace, got) {
			t.Errorf("the new name %q is not recognised", got)
		}
	}
}

func TestMapOfTaggedNamesRenamesToOwnTags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ template, parts, old, want, says string }{
		{"{{pt6}}:{id}:{part}", "", "{pt6}:order-17:lines", "{order-17}:lines", ""},
		{"{{pt6}}:{id}:{part}", "", "{order-17}:lines", "{order-17}:lines", ""}, // renamed already
		{"{{pt6}}:{id}:{part}", "", "{pt6}:a%3Ab:lines", "", "contains an escape"},
		{"{{{id}}}:{part}", "", "{a%3Ab}:lines", "", "contains an escape"},
		{"{{{id}}}:{part}", "", "{17}:lines", "{17}:lines", ""},
		{"{{{id}}}:{a}:{b}", "{b},{a}", "{17}:x:y", "", "is also an old name"}, // the next run would exchange them again
	} {
		var parts []string
		if c.parts != "" {
			parts = strings.Split(c.parts, ",")
		}
		m, err := ParseMap(c.template, parts...)
		assert.Must(t, err)
		got, err := m.rename(luatx.OwnTags(), c.old)
		assert.Equal(t, got, c.want, "%s: %q (%v)", c.template, c.old, err)
		if c.says != "" {
			assert.ErrorContains(t, err, c.says, "%s: %q", c.template, c.old)
		}
	}
}

func TestFromInvertsTheKeyspace(t *testing.T) {
	t.Parallel()
	spaces := []luatx.Keyspace{
		luatx.OwnTags(), luatx.OwnTags().WithPrefix("p"), luatx.Partitions(1), luatx.Partitions(16), luatx.Partitions(32), luatx.Partitions(48),
		luatx.Partitions(16).WithPrefix("p"), luatx.Partitions(16).WithPrefix("a:b"),
	}
	for _, from := range spaces {
		for _, to := range spaces {
			for _, words := range [][]string{{"order-17", "lines"}, {"order-17"}, {"a:b", "x{y}", "50%", "\n"}, {"%3A", "%"}} {
				old, err := from.Key(words[0], words[1:]...)
				assert.Must(t, err)
				want, err := to.Key(words[0], words[1:]...)
				assert.Must(t, err)
				got, err := From(from).rename(to, old)
				assert.NoError(t, err, "%q of %+v", old, from)
				assert.Equal(t, got, want, "%q of %+v to %+v", old, from, to)
				again, err := From(from).rename(to, want)
				assert.NoError(t, err, "again: %q of %+v", want, from)
				assert.Equal(t, again, want, "again: %q of %+v to %+v", want, from, to)
			}
		}
	}
	for _, key := range []string{"{pt6}:orders", "orders", "{}:a", "q:{17}:a"} {
		assert.ErrorContains(t, assert.ErrOf(From(luatx.Partitions(16)).rename(luatx.Partitions(32), key)), "does not match", "%q", key)
	}
}

// A new name that is also an old one would be renamed again by the next run.
func TestFromRejectsNewNamesThatAreAlsoOldNames(t *testing.T) {
	t.Parallel()
	from := luatx.Partitions(1)
	tag := from.Tags()[0]
	key, err := from.Key(tag, "lines") // its new name is {tag}:lines, a name of the aggregate "lines"
	assert.Must(t, err)
	assert.ErrorContains(t, assert.ErrOf(From(from).rename(luatx.OwnTags(), key)), "choose another prefix", "%q", key)
	got, err := From(from).rename(luatx.OwnTags().WithPrefix("p"), key)
	assert.NoError(t, err, "%q with a prefix", key)
	assert.Equal(t, got, "p:{"+tag+"}:lines", "%q with a prefix", key)
}

func TestParseMapRejectsInvalidTemplates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ template, parts, says string }{
		{"account:*", "", "{id} is missing"},
		{"account:{id", "", "the brace at 8"},
		{"account:id}", "", "the brace at 10"},
		{"account:{ID}", "", "the brace at 8"},
		{"{id}:{id}", "", "occurs twice"},
		{"{id}{part}", "", "are adjacent"},
		{"{id}:{part}", "x", "{part} is missing"},
		{"{id}:{part}", "{part},{other}", "{other} is not in the map"},
		{"{id}", "x,,y", "one is empty"},
	} {
		var parts []string
		if c.parts != "" {
			parts = strings.Split(c.parts, ",")
		}
		assert.ErrorContains(t, assert.ErrOf(ParseMap(c.template, parts...)), c.says, "%s (%s)", c.template, c.parts)
	}
}

func TestKeysThatOnlyResembleThoseOfAKeyspaceAreNotRenamed(t *testing.T) {
	t.Parallel()
	parts := luatx.Partitions(16)
	key, err := parts.Key("order-17", "lines")
	assert.Must(t, err)
	tag := parts.Tags()
	i := slices.IndexFunc(tag, func(tag string) bool { return strings.HasPrefix(key, "{"+tag+"}") })
	for text, c := range map[string]struct {
		keyspace luatx.Keyspace
		want     bool
	}{
		key:                       {parts, true},
		"p:" + key:                {parts.WithPrefix("p"), true},
		"q:" + key:                {parts.WithPrefix("p"), false},
		key + "x{y}":              {parts, false},
		"{" + tag[i] + "}":        {parts, false},
		"{" + tag[i] + "}:":       {parts, false},
		"{1}:a":                   {luatx.OwnTags(), true},
		"{1}":                     {luatx.OwnTags(), true},
		"{1}a":                    {luatx.OwnTags(), false},
		"{1}:a:":                  {luatx.OwnTags(), false},
		"{1":                      {luatx.OwnTags(), false},
		"{}:a":                    {luatx.OwnTags(), false},
		"{a%2":                    {luatx.OwnTags(), false},
		"{a%2}:b":                 {luatx.OwnTags(), false},
		"{a%3Ab}:c":               {luatx.OwnTags(), true},
		"{a%3ab}:c":               {luatx.OwnTags(), false},
		"x:{1}:a":                 {luatx.OwnTags(), false},
		"{" + tag[i] + "}:17:a2b": {luatx.Partitions(16), false},
	} {
		assert.Equal(t, isNamed(c.keyspace, text), c.want, "%q", text)
	}
}

// FuzzRenameGivesEachKeyADifferentName also tests that every new name is recognized.
func FuzzRenameGivesEachKeyADifferentName(f *testing.F) {
	f.Add("account:{id}:{part}", "account:17:balance", "account:18:balance")
	f.Add("{a}-{id}", "x-1", "x-%31")
	f.Fuzz(func(t *testing.T, template, one, two string) {
		m, err := ParseMap(template)
		if err != nil {
			return
		}
		for _, keyspace := range []luatx.Keyspace{luatx.OwnTags(), luatx.Partitions(3).WithPrefix("p")} {
			a, err := m.rename(keyspace, one)
			if err != nil {
				continue
			}
			if !isNamed(keyspace, a) {
				t.Errorf("%q becomes %q, which is not recognised", one, a)
			}
			if b, err := m.rename(keyspace, two); err == nil && one != two && a == b {
				t.Errorf("%q and %q both become %q", one, two, a)
			}
		}
	})
}
