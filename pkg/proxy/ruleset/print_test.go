package ruleset_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

const goldenFile = "testdata/both-families.nft"

// goldenTables have every set, every kind of chain and a client with affinity, in both families.
func goldenTables(t testing.TB) *ruleset.Tables {
	t.Helper()
	collided := collidingPort(t)
	collided.ID.Service, collided.ClusterIP = serviceName("collided"), netip.MustParseAddr("10.96.0.5")
	collided.Frontends[0].Addr = collided.ClusterIP
	r := start(t, append(someServices(), serviceOf(collided))...)
	addClient(t, r, someServices()[0].Ports[0].ID, "192.0.2.7", first)
	return &r.Tables
}

func TestPrintMatchesTheGoldenFile(t *testing.T) {
	golden.File(t, goldenFile, text(t, goldenTables(t)))
}

// TestPrintDoesNotDependOnHistory, except for the numbers of session affinity, which a start with empty tables restores
// here.
func TestPrintDoesNotDependOnHistory(t *testing.T) {
	r := start(t)
	for _, service := range slices.Backward(someServices()) {
		r.change(t, service)
	}
	if diff := cmp.Diff(text(t, freshTables(t, &r.Tables, someServices())), text(t, &r.Tables)); diff != "" {
		t.Errorf("the same tables, created in another order (-at once +in steps):\n%s", diff)
	}
}

// TestTheOrderOfWhatIsPrinted is meant for human readers.
func TestTheOrderOfWhatIsPrinted(t *testing.T) {
	r := start(t, serviceOf(sticky(portOf("web", "10.96.0.1", many(ruleset.PreallocatedSlots+1)...), time.Hour)))
	var names []string
	for line := range strings.Lines(text(t, &r.Tables)) {
		words := strings.Fields(line)
		if len(words) == 3 && words[2] == "{" {
			names = append(names, words[1])
		}
		if len(words) > 0 && words[0] == "table" && words[1] == "ip6" {
			break
		}
	}
	want := strings.Fields("services nodeports dispatch endpoints nodeport-endpoints sticky nodeport-sticky sticky-dispatch " +
		"sticky-ports nodeport-sticky-ports sticky-outside nodeport-sticky-outside sticky-endpoints nodeport-sticky-endpoints " +
		"numbered numbered-collided external-cluster nodeport-cluster external-local nodeport-local " +
		"restricted sources cluster-ips nodeport-ips hairpin " +
		"affinity-0 " +
		"nat-prerouting nat-output nat-postrouting masquerade-node masquerading nodeport-sticky-draw nodeport-sticky-port " +
		"nodeports numbered refuse services source-ranges sticky-3600-0 sticky-draw sticky-port")
	for slots := range ruleset.PreallocatedSlots + 1 {
		want = append(want, fmt.Sprintf("lb-%d", slots+1))
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("sets and chains (-want +got):\n%s", diff)
	}
}

func TestPrintOfNothing(t *testing.T) {
	for name, test := range map[string]struct {
		tables *ruleset.Tables
		want   string
	}{
		"no tables":             {&ruleset.Tables{}, ""},
		"a table that is empty": {emptyTable(t), "table ip vicinity {\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text(t, test.tables); got != test.want {
				t.Errorf("printed %q, want %q", got, test.want)
			}
		})
	}
}

func emptyTable(t testing.TB) *ruleset.Tables {
	tables := &ruleset.Tables{}
	mustApply(t, tables, ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Add, Family: model.IPv4, Object: ruleset.TableObject{}}}})
	return tables
}

// brokenWriter is a pipe whose reader was closed.
type brokenWriter struct{}

var errBroken = errors.New("broken pipe")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestPrintReportsThatItCouldNotWrite(t *testing.T) {
	if err := goldenTables(t).Print(brokenWriter{}); !errors.Is(err, errBroken) {
		t.Errorf("error %v, want that of the writer", err)
	}
}
