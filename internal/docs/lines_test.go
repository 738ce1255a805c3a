package docs_test

import (
	"testing"

	"github.com/luatx/luatx/internal/docs"
)

func TestCodeLinesCountsNeitherImportsNorBlankLines(t *testing.T) {
	t.Parallel()
	if n := docs.CodeLines("package main\n\nimport \"a\"\nimport (\n\t\"b\"\n)\n\n// f does it.\nfunc f() {\n}\n"); n != 4 {
		t.Errorf("%d lines, want 4", n)
	}
}
