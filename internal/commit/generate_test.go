package commit

import (
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/assert"
)

func TestWriterIndentsBlocks(t *testing.T) {
	t.Parallel()
	var w writer
	w.put("if a then\nif b then return end\nelseif c %% 2 == %d then\nrepeat\nd()\nuntil true\nelse", 1)
	w.put("for i = 1, n do\ne()\n\nend\nend")
	w.put("ended()")
	assert.Equal(t, w.String(), `if a then
  if b then return end
elseif c % 2 == 1 then
  repeat
    d()
  until true
else
  for i = 1, n do
    e()

  end
end
ended()
`, "the text")
}

func TestScriptSaysForWhichPlanItIs(t *testing.T) {
	t.Parallel()
	s := shape{steps: []step{{"GET", lua.NoUndo, 0}}}
	for batch, want := range map[bool]string{false: "", true: "-- For any number of transactions.\n"} {
		head, _, _ := strings.Cut(s.compile(batch), "local ")
		assert.Equal(t, head, "-- A commit made for its plan: "+s.String()+".\n"+want, "the head")
	}
}
