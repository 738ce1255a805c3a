package prometheus_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	prom "github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v2"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/contrib/prometheus"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/stream"
)

// exported returns the labels of each metric that the collectors export.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	metrics, err := prometheus.New(prometheus.Config{})
	redistest.Must(t, err)
	client := redistest.Shared(t).Client(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: "x"})
	redistest.Must(t, err)
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "metrics"})
	redistest.Must(t, err)
	outbox, err := prometheus.NewOutbox(op, prometheus.OutboxConfig{Namespace: "x"})
	redistest.Must(t, err)
	ch := make(chan *prom.Desc, 100)
	metrics.Describe(ch)
	outbox.Describe(ch)
	close(ch)
	described := regexp.MustCompile(`fqName: "(\w+)".*constLabels: \{(.*)\}, variableLabels: \{([^}]*)\}`)
	names := make(map[string][]string)
	for d := range ch {
		found := described.FindStringSubmatch(d.String())
		if found == nil {
			t.Fatal(d)
		}
		labels := strings.FieldsFunc(found[3], func(r rune) bool { return r == ',' })
		if label, _, ok := strings.Cut(found[2], "="); ok {
			labels = append(labels, label)
		}
		names[found[1]] = labels
	}
	return names
}

var (
	metricName = regexp.MustCompile(`\bluatx_\w+`)
	selector   = regexp.MustCompile(`\b(luatx_\w+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"[^"]*"`)
	grouping   = regexp.MustCompile(`\bby \(([^)]*)\)`)
	suffix     = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// checkQuery reports metrics and labels in a query that are not exported.
func checkQuery(t *testing.T, where, query string, names map[string][]string) {
	t.Helper()
	labelsOf := func(name string) ([]string, bool) {
		if labels, ok := names[name]; ok {
			return labels, true
		}
		labels, ok := names[suffix.ReplaceAllString(name, "")]
		return append(slices.Clone(labels), "le"), ok && strings.Contains(name, "_")
	}
	var all []string
	for _, name := range metricName.FindAllString(query, -1) {
		labels, ok := labelsOf(name)
		if !ok {
			t.Errorf("%s: %s is not exported", where, name)
		}
		all = append(all, labels...)
	}
	if len(all) == 0 {
		t.Errorf("%s: %q asks for nothing", where, query)
	}
	for _, found := range selector.FindAllStringSubmatch(query, -1) {
		labels, _ := labelsOf(found[1])
		matchers := matcher.FindAllStringSubmatch(found[2], -1)
		if len(matchers) == 0 {
			t.Errorf("%s: %q has no matcher", where, found[0])
		}
		for _, m := range matchers {
			if !slices.Contains(labels, m[1]) {
				t.Errorf("%s: %s has no label %s, but %q", where, found[1], m[1], labels)
			}
		}
	}
	for _, found := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(found[1], ",") {
			if !slices.Contains(all, strings.TrimSpace(label)) {
				t.Errorf("%s: %q groups by %s, which no metric of it has", where, query, label)
			}
		}
	}
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(query, pair[:1]) != strings.Count(query, pair[1:]) {
			t.Errorf("%s: %q is not balanced", where, query)
		}
	}
}

// runbooks is the page that rules and panels link to.
const runbooks = "https://github.com/luatx/luatx/blob/main/docs/operations.md#"

// anchors returns the headings of a page, as links name them.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", page))
	redistest.Must(t, err)
	var all []string
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			all = append(all, strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-"))
		}
	}
	return all
}

// TestAlertRulesAreCompleteAndQueryExportedMetrics also checks that they link to existing headings.
func TestAlertRulesAreCompleteAndQueryExportedMetrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("alerts.yaml")
	redistest.Must(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	redistest.Must(t, yaml.UnmarshalStrict(text, &file))
	names, headings := exported(t), anchors(t, "docs/operations.md")
	seen := make(map[string]bool)
	for _, rule := range file.Groups[0].Rules {
		checkQuery(t, rule.Alert, rule.Expr, names)
		anchor, ok := strings.CutPrefix(rule.Annotations["runbook_url"], runbooks)
		switch {
		case !strings.HasPrefix(rule.Alert, "Luatx") || seen[rule.Alert]:
			t.Errorf("%q is no name, or is another's", rule.Alert)
		case !ok || anchor != strings.ToLower(rule.Alert) || !slices.Contains(headings, anchor):
			t.Errorf("%s: docs/operations.md has no heading for %q", rule.Alert, rule.Annotations["runbook_url"])
		case rule.Annotations["summary"] == "" || !slices.Contains([]string{"warning", "critical"}, rule.Labels["severity"]):
			t.Errorf("%s lacks a summary or a severity", rule.Alert)
		}
		seen[rule.Alert] = true
	}
	if len(seen) < 10 {
		t.Errorf("%d rules were read", len(seen))
	}
}

// watched finds the series whose growth an alert watches.
var watched = regexp.MustCompile(`\b(?:increase|rate)\((luatx_\w+)\{(\w+)="(\w+)"\}`)

// TestCountersOfAlertsAreExportedAtZero holds the first failure, because increase and rate do not see a series begin.
func TestCountersOfAlertsAreExportedAtZero(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("alerts.yaml")
	redistest.Must(t, err)
	metrics, registry := newMetrics(t, prometheus.Config{})
	metrics.Transactor("shop")
	metrics.Count("orders", "billing", func() stream.SubscriberStats { return stream.SubscriberStats{} })
	found := watched.FindAllStringSubmatch(string(text), -1)
	if len(found) < 4 {
		t.Errorf("%d series were read", len(found))
	}
	for _, series := range found {
		name := strings.TrimSuffix(series[1], "_count")
		if got := value(t, registry, name, series[2], series[3]); got != 0 {
			t.Errorf("%s{%s=%q} is %v before the first failure, want 0", name, series[2], series[3], got)
		}
	}
}

func TestDashboardQueriesExportedMetricsAndLinksRunbooksWithoutOverlap(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("grafana", "luatx.json"))
	redistest.Must(t, err)
	var board struct {
		UID    string
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Links       []struct{ URL string }
			Targets     []struct{ Expr string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	redistest.Must(t, json.Unmarshal(text, &board))
	names, headings := exported(t), anchors(t, "docs/operations.md")
	used, linked := make(map[string]bool), make(map[string]bool)
	taken := make(map[[2]int]string)
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s asks for nothing", p.Title)
		}
		for _, link := range p.Links {
			if anchor, ok := strings.CutPrefix(link.URL, runbooks); !ok || !slices.Contains(headings, anchor) {
				t.Errorf("%s: docs/operations.md has no heading for %q", p.Title, link.URL)
			}
		}
		for _, target := range p.Targets {
			checkQuery(t, p.Title, target.Expr, names)
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				linked[name] = linked[name] || len(p.Links) > 0
				used[suffix.ReplaceAllString(name, "")] = true
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies over %q, or beside the page", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	for _, name := range []string{
		"luatx_stream_dead_letters", "luatx_stream_oldest_dead_letter_seconds", "luatx_outbox_blocked_events", "luatx_outbox_blocked_keys", "luatx_processes",
	} {
		if !linked[name] {
			t.Errorf("no panel with a runbook shows %s", name)
		}
	}
	if len(used) < 12 || board.UID == "" || len(board.Templating.List) != 2 {
		t.Errorf("the dashboard shows %d metrics", len(used))
	}
}

// TestDocumentationListsExactlyTheExportedMetrics reads docs/observability.md, with labels.
func TestDocumentationListsExactlyTheExportedMetrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "observability.md"))
	redistest.Must(t, err)
	row := regexp.MustCompile("(?m)^\\| `(luatx_\\w+)` \\| ([^|]*) \\|")
	documented := make(map[string]string)
	for _, found := range row.FindAllStringSubmatch(string(text), -1) {
		documented[found[1]] = found[2]
	}
	names := exported(t)
	for name, labels := range names {
		for _, label := range labels {
			if !strings.Contains(documented[name], label) {
				t.Errorf("docs/observability.md: %s has no label %s", name, label)
			}
		}
	}
	for name := range documented {
		if _, ok := names[name]; !ok {
			t.Errorf("docs/observability.md: %s is not exported", name)
		}
	}
}

func TestComposeFileIsValidAndUsesFlagsOfServe(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "compose.yaml"))
	redistest.Must(t, err)
	var file struct {
		Services map[string]struct {
			Command []string
			Build   struct{ Context, Dockerfile string }
			Ports   []string
		}
	}
	redistest.Must(t, yaml.Unmarshal(text, &file))
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	redistest.Must(t, err)
	_, flags, _ := strings.Cut(string(page), "\nluatx serve [flags]\n")
	flags, _, _ = strings.Cut(flags, "\n```")
	service := file.Services["luatx"]
	if len(service.Command) == 0 || service.Command[0] != "serve" {
		t.Fatalf("the command is %q", service.Command)
	}
	for _, arg := range service.Command {
		if flag, ok := strings.CutPrefix(arg, "-"); ok && !strings.Contains(flags, "\n  "+flag+" ") {
			t.Errorf("luatx serve has no flag %s", arg)
		}
	}
	for _, port := range service.Ports {
		if !strings.HasPrefix(port, "127.0.0.1:") {
			t.Errorf("%s is open to others", port)
		}
	}
	if _, err := os.Stat(filepath.Join("..", "..", service.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
}
