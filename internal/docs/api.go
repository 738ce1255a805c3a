package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// API returns the exported names of every public package of a tree, one per line: directory, name, kind.
func API(tree fs.FS) (string, error) {
	var lines []string
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			base := entry.Name()
			if slices.Contains([]string{"internal", "testdata", "examples"}, base) || base != "." && strings.HasPrefix(base, ".") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil || file.Name.Name == "main" {
			return err
		}
		for _, found := range exported(file) {
			lines = append(lines, path.Dir(name)+" "+found)
		}
		return nil
	})
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n") + "\n", err
}

// exported returns the exported names that a file declares, each with its kind. It removes the others from the file.
func exported(file *ast.File) (names []string) {
	ast.FileExports(file)
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names = append(names, d.Name.Name+" func")
			} else if receiver := typeName(d.Recv.List[0].Type); ast.IsExported(receiver) {
				names = append(names, receiver+"."+d.Name.Name+" method")
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						names = append(names, name.Name+" "+d.Tok.String())
					}
				case *ast.TypeSpec:
					names = append(names, s.Name.Name+" type")
					for _, member := range members(s.Type) {
						names = append(names, s.Name.Name+"."+member)
					}
				}
			}
		}
	}
	return names
}

// members returns the fields of a struct or the methods of an interface, embedded ones under the names of their types.
func members(expr ast.Expr) (found []string) {
	var fields *ast.FieldList
	kind := " field"
	switch t := expr.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields, kind = t.Methods, " method"
	default:
		return nil
	}
	for _, field := range fields.List {
		if field.Names == nil {
			found = append(found, typeName(field.Type)+kind)
		}
		for _, name := range field.Names {
			found = append(found, name.Name+kind)
		}
	}
	return found
}

// typeName returns the name of a type without its pointer, package and parameters.
func typeName(expr ast.Expr) string {
	switch t := expr.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.IndexListExpr:
		return typeName(t.X)
	}
	return "_"
}
