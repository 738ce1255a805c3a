package docs

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/luatx/luatx/internal/test/assert"
)

// TestKeysPageMatchesScriptsAndConstants compares docs/keys.md with the headers of the scripts and the constants of the
// keys. LUATX_UPDATE=1 writes the page.
func TestKeysPageMatchesScriptsAndConstants(t *testing.T) {
	t.Parallel()
	wantPage(t, "../../docs/keys.md", KeysPage)
}

func TestKeysPageListsTheScriptsAndKeysOfATree(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"internal/lua/_part.lua":  {Data: []byte("-- Purpose: a part|piece. Expects\n-- NOW.\n--\n-- Only for readers.\nlocal x\n")},
		"internal/lua/move.lua":   {Data: []byte("-- Purpose: moves a\n--          thing.\n-- KEYS:    1  a|b\n--          2  c\n-- ARGV:    none\n-- Redis:   7.0\n--#needs _part\nreturn 1\n-- Reply: never\n")},
		"internal/shard/keys.go":  {Data: []byte("package shard\n\nconst (\n\tkeyA = \"a:b\" // hash: id → body\n)\n\nconst other = 1\n")},
		"internal/shard/sweep.go": {Data: []byte("package shard\n")},
		"internal/shard/pause.go": {Data: []byte("package shard\n")},
		"internal/shard/plans.go": {Data: []byte("package shard\n")},
	}
	page, err := KeysPage(tree)
	assert.Must(t, err)
	for _, want := range []string{"| `a:b` | hash | id → body |\n", "### move\n\nMoves a thing.\n\n[move.lua](../internal/lua/move.lua)\n\n```text\nKEYS:    1  a|b\n         2  c\nARGV:    none\nRedis:   7.0\n```\n", "| [_part.lua](../internal/lua/_part.lua) | A part\\|piece. Expects NOW. |\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "never\n") || strings.Contains(page, "Only for") {
		t.Error(page)
	}
	tree["internal/shard/pause.go"] = &fstest.MapFile{Data: []byte("package shard\n\nconst keyB = \"b\"\n")}
	if _, err := KeysPage(tree); err == nil || !strings.Contains(err.Error(), "keyB has no comment") {
		t.Error(err)
	}
}
