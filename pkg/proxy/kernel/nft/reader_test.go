//go:build linux

package nft

import (
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// openReaderIn opens a reader in a namespace.
func openReaderIn(t *testing.T, namespace *netns.Namespace) *Reader {
	t.Helper()
	var r *Reader
	var err error
	namespace.Do(func() { r, err = OpenReader() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// differencesIn compares the desired result of a batch with the content of a namespace, and returns a line for each
// difference.
func differencesIn(t *testing.T, namespace *netns.Namespace, batch ruleset.Batch, families ...model.Family) []string {
	t.Helper()
	var desired ruleset.Tables
	if err := desired.Apply(batch); err != nil {
		t.Fatal(err)
	}
	var lines []string
	reader := openReaderIn(t, namespace)
	for _, family := range families {
		table, err := reader.Table(t.Context(), family)
		if err != nil {
			t.Fatal(err)
		}
		differences, err := table.Differences(&desired)
		if err != nil {
			t.Fatal(err)
		}
		for _, difference := range differences {
			lines = append(lines, difference.String())
		}
	}
	return lines
}

// Every form of rule and every set reads back as it was written, owned tables too.
func TestWrittenTablesHaveNoDifference(t *testing.T) {
	for _, owned := range []bool{false, true} {
		for _, family := range model.Families {
			namespace := netns.New(t)
			batch := everything(family)
			commit(t, dial(t, namespace, Options{Owned: owned}), batch)
			if lines := differencesIn(t, namespace, batch, family); len(lines) > 0 {
				t.Errorf("%s, owned: %t:\n%s", family, owned, strings.Join(lines, "\n"))
			}
		}
	}
}

func TestEveryFormAndLayoutIsReadAsItWasWritten(t *testing.T) {
	for _, family := range model.Families {
		namespace, batch := netns.New(t), formsBatch(family, append(statementForms(), prefixForms(family)...))
		commit(t, dial(t, namespace, Options{}), batch)
		if lines := differencesIn(t, namespace, batch, family); len(lines) > 0 {
			t.Errorf("forms of %s:\n%s", family, strings.Join(lines, "\n"))
		}
	}
	for name, layout := range everyLayout() {
		namespace, batch := netns.New(t), layout.batch(nil)
		commit(t, dial(t, namespace, Options{}), batch)
		if lines := differencesIn(t, namespace, batch, model.Families...); len(lines) > 0 {
			t.Errorf("%s:\n%s", name, strings.Join(lines, "\n"))
		}
	}
}

func TestEveryExternalChangeIsADifference(t *testing.T) {
	batch := everyLayout()["no settings"].batch(nil)
	for _, test := range []struct{ nft, want string }{
		{"delete table ip6 vicinity", "ip6 vicinity is missing"},
		{"add set ip vicinity more { type ipv4_addr; }", "ip vicinity set more is stray"},
		{"add chain ip vicinity more", "ip vicinity chain more is stray"},
		{"add counter ip vicinity more", "ip vicinity counter more is stray"},
		{"add element ip vicinity cluster-ips { 10.96.9.9 }", "ip vicinity set cluster-ips: 10.96.9.9 is stray"},
		{"delete element ip vicinity services { 10.96.0.1 . tcp . 80 }", "ip vicinity map services: 10.96.0.1 . tcp . 80 : ff00:1 is missing"},
		{"insert rule ip vicinity refuse accept", "ip vicinity chain refuse: the number of rules"},
		{"flush chain ip6 vicinity refuse ; add rule ip6 vicinity refuse accept", "ip6 vicinity chain refuse: the number of rules"},
		{"flush chain ip vicinity lb-1 ; add rule ip vicinity lb-1 accept", "ip vicinity chain lb-1: rule 1 is changed"},
	} {
		namespace := netns.New(t)
		commit(t, dial(t, namespace, Options{}), batch)
		for command := range strings.SplitSeq(test.nft, " ; ") {
			namespace.NFT(strings.Fields(command)...)
		}
		if got := differencesIn(t, namespace, batch, model.Families...); len(got) != 1 || !strings.Contains(got[0], test.want) {
			t.Errorf("%s: %q, want %q", test.nft, got, test.want)
		}
	}
}
