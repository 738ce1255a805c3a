package sqltx

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the migrations")

// migrationFiles returns the files that the schemas result in, by path.
func migrationFiles() map[string]string {
	files := map[string]string{}
	for name, d := range map[string]Dialect{"postgres": PostgreSQL(), "mysql": MySQL(), "sqlite": SQLite()} {
		var up, down []string
		for _, part := range []struct {
			table  string
			schema []string
		}{{DefaultInboxTable, d.InboxSchema}, {DefaultOutboxTable, d.OutboxSchema}} {
			t, err := d.table(part.table)
			if err != nil {
				panic(err)
			}
			for _, statement := range d.render(t, part.schema) {
				up = append(up, statement+";\n")
			}
			down = append([]string{fmt.Sprintf("DROP TABLE IF EXISTS %s;\n", t.quoted)}, down...)
		}
		ups, downs := strings.Join(up, "\n"), strings.Join(down, "")
		files["goose/"+name+"/00001_luatx.sql"] = "-- +goose Up\n" + ups + "\n-- +goose Down\n" + downs
		files["migrate/"+name+"/000001_luatx.up.sql"] = ups
		files["migrate/"+name+"/000001_luatx.down.sql"] = downs
	}
	return files
}

func TestMigrationFilesHaveTheStatementsOfInit(t *testing.T) {
	t.Parallel()
	for name, want := range migrationFiles() {
		path := filepath.Join("migrations", filepath.FromSlash(name))
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s is not what the schema says; go test ./sqltx -update writes it; %v", path, err)
		}
		if _, err := Migrations.ReadFile("migrations/" + name); err != nil && !*update {
			t.Error(err)
		}
	}
}
