package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/luatx/luatx/internal/docs"
)

// readmeProgram returns the first Go block of package main in the README.md of dir, or "" if there is none.
func readmeProgram(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return "", err
	}
	for _, block := range docs.Parse(string(text)).Blocks {
		if language, _, _ := strings.Cut(block.Info, " "); language != "go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), "", block.Text, parser.PackageClauseOnly)
		if err == nil && file.Name.Name == "main" {
			return block.Text, nil
		}
	}
	return "", nil
}

// imports returns the paths that a Go file imports.
func imports(source string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "README.md", source, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}
