package dns

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// TestCoreDNSQueries uses queries that are independent of this project. Names that are served here get the
// responses that CoreDNS' own tests expect; all others get REFUSED. Without topology keys no name is served.
func TestCoreDNSQueries(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/coredns.txtar")
	must.Succeed(t, err)
	objects, questions := string(archive.Files[0].Data), string(archive.Files[1].Data)
	const keys = ", annotations: {" + policy.TopologyKeysAnnotation + `: "*"}`
	table, none := tableOf(t, objects), tableOf(t, strings.ReplaceAll(objects, keys, ""))
	if table.Len() != 2 || none.Len() != 0 {
		t.Errorf("%d Services are served with topology keys, %d without; want 2 and 0", table.Len(), none.Len())
	}
	answered := 0
	for line := range strings.Lines(questions) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		want := "REFUSED"
		if len(words) == 3 {
			want = words[2]
			answered++
		}
		query := newQuery(t, words[0]+" "+words[1])
		got, _, _ := exchange(t, query, TCP, table.Lookup)
		if text := answerText(got); text != want {
			t.Errorf("%s %s\ngot  %s\nwant %s", words[0], words[1], text, want)
		}
		for _, record := range got.Answer {
			if header := record.Header(); header.Name != words[1] || header.Ttl != 5 {
				t.Errorf("%s %s: got %v", words[0], words[1], record)
			}
		}
		for _, record := range got.Extra {
			if name := record.Header().Name; !strings.Contains(want, name) {
				t.Errorf("%s %s: additional address of %s, which is not a target", words[0], words[1], name)
			}
		}
		if got, _, _ := exchange(t, query, TCP, none.Lookup); answerText(got) != "REFUSED" {
			t.Errorf("%s %s: without topology keys: %s, want REFUSED", words[0], words[1], answerText(got))
		}
	}
	if answered != 4 {
		t.Errorf("%d queries have responses with records, want 4", answered)
	}
}

// tableOf converts objects as a proxy does, and applies the decisions about all Services to a table.
func tableOf(t *testing.T, objects string) *Table {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(objects), 0o600))
	update, err := manifests.NewManifests(dir, convert.View{Node: "n1", WithHeadless: true}, slog.New(slog.DiscardHandler)).Load()
	if err != nil || len(update.NewProblems) > 0 {
		t.Fatalf("load the objects: %v, %v", err, update.NewProblems)
	}
	cluster := model.NewCluster("n1")
	cluster.Apply(update.Change)
	table, planner := &Table{Zone: testZone}, selection.NewPlanner(cluster)
	for _, name := range cluster.ServiceNames() {
		table.OnApplied(name, table.Derive(planner.Decide(name, model.Families)))
	}
	table.OnSynced(selection.SyncState{})
	return table
}
