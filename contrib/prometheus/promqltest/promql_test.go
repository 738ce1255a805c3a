package promqltest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v2"
)

func TestQueriesOfAlertRulesAreValidForPrometheus(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules++
			expr, err := parser.ParseExpr(r.Expr)
			if err != nil {
				t.Errorf("%s: %v in %s", r.Alert, err, r.Expr)
				continue
			}
			if expr.Type() != parser.ValueTypeVector {
				t.Errorf("%s is a %s, and an alert needs a vector", r.Alert, expr.Type())
			}
		}
	}
	if rules < 15 {
		t.Errorf("%d rules were parsed", rules)
	}
}

// variables replaces each variable of Grafana in the queries by a value.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$namespace", "shop")

func TestQueriesOfDashboardAreValidForPrometheus(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "grafana", "luatx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries++
			if _, err := parser.ParseExpr(variables.Replace(target.Expr)); err != nil {
				t.Errorf("%s: %v in %s", p.Title, err, target.Expr)
			}
		}
	}
	if queries < 25 {
		t.Errorf("%d queries were parsed", queries)
	}
}
