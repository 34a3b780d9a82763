//go:build linux

package nft

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// withoutComments returns a batch as written by a proxy version without comments.
func withoutComments(batch ruleset.Batch) ruleset.Batch {
	bare := ruleset.Batch{Ops: slices.Clone(batch.Ops)}
	for i, op := range bare.Ops {
		object, isElements := op.Object.(ruleset.ElementsObject)
		if !isElements {
			continue
		}
		elements := slices.Collect(object.Elements)
		for j := range elements {
			elements[j].Comment = ""
		}
		bare.Ops[i].Object = ruleset.ElementsObject{Set: object.Set, Elements: slices.Values(elements)}
	}
	return bare
}

// The comments are added in the transaction of the full sync. Until then, comparing with the kernel finds no
// difference.
func TestTablesWithoutCommentsGetThemWithTheNextFullSync(t *testing.T) {
	namespace, layout := netns.New(t), everyLayout()["all settings"]
	c := dial(t, namespace, Options{})
	commit(t, c, withoutComments(layout.batch(nil)))
	if strings.Contains(namespace.NFT("list", "ruleset"), "comment") {
		t.Fatal("the table already has comments")
	}
	var desired ruleset.Tables
	if err := desired.Apply(layout.batch(nil)); err != nil {
		t.Fatal(err)
	}
	found := map[model.Family]ruleset.Objects{}
	for _, family := range model.Families {
		found[family] = objects(t, c, family)
		actual := ruleset.Objects{Table: true, Chains: found[family].Chains}
		sets, _ := desired.Sets(family)
		for _, set := range sets {
			actual.Add(set.Name, elementsOf(t, c, family, set))
		}
		if differences := desired.Differences(family, actual); len(differences) > 0 {
			t.Errorf("a table without comments has differences: %v", differences)
		}
	}
	commit(t, c, layout.batch(found))
	fresh := netns.New(t)
	commit(t, dial(t, fresh, Options{}), layout.batch(nil))
	if diff := cmp.Diff(sortedJSON(t, fresh), sortedJSON(t, namespace)); diff != "" {
		t.Errorf("the tables differ from new ones (-new +got):\n%s", diff)
	}
}

// The kernel accepts another comment and ignores it, and so do the tables in memory.
func TestAnElementThatIsAddedAgainKeepsItsComment(t *testing.T) {
	namespace := netns.New(t)
	c := dial(t, namespace, Options{})
	element := elementsIn(model.IPv4, ruleset.Services)[0]
	first := operations{emptyMaps(model.IPv4, ruleset.Services)}
	first.elements(ruleset.Add, model.IPv4, ruleset.Services, element)
	element.Comment = "shop/other"
	again := new(operations).elements(ruleset.Add, model.IPv4, ruleset.Services, element)
	var tables ruleset.Tables
	for _, batch := range []ruleset.Batch{first.Batch, again.Batch} {
		commit(t, c, batch)
		if err := tables.Apply(batch); err != nil {
			t.Fatal(err)
		}
	}
	var printed strings.Builder
	if err := tables.Print(&printed); err != nil {
		t.Fatal(err)
	}
	const want = `80 comment "shop/web:http" : fe00:3`
	if listed := namespace.NFT("list", "ruleset"); !strings.Contains(listed, want) || !strings.Contains(printed.String(), want) {
		t.Errorf("want %s; listed:\n%s\nprinted:\n%s", want, listed, printed.String())
	}
}

// Invalid names may contain terminal control sequences, or characters that end the text for nft. The longest names fit
// into nft's limit.
func TestInvalidNamesAreSanitizedInComments(t *testing.T) {
	namespace, service := strings.Repeat("n", 63), strings.Repeat("s", 63)
	for name, test := range map[string]struct {
		id   model.PortID
		want string
	}{
		"a name":         {portID("shop", "web", "http"), "shop/web:http"},
		"no port name":   {portID("shop", "web", ""), "shop/web"},
		"the longest":    {portID(namespace, service, "fifteen-letters"), namespace + "/" + service[:44] + "...:fifteen-letters"},
		"controls":       {portID("shop", "w\x1b[2J\n\r\x00\x9b", "\u009b31m\x7f"), "shop/w??2J????:?31m?"},
		"nft's syntax":   {portID("shop", `w" : fe00:2 }; flush ruleset #`, `a\`), "shop/w??:?fe00:2????flush?ruleset??:a?"},
		"another script": {portID("läden", "ウェブ", "ポ"), "l?den/???:?"},
		"far too long":   {portID(strings.Repeat("n", 300), "web", strings.Repeat("p", 300)), "...:" + strings.Repeat("p", 123)},
	} {
		t.Run(name, func(t *testing.T) {
			services := servicesOf(model.IPv4, everyShape(model.IPv4)[:1])
			services[0].Ports[0].ID = test.id
			config := layout{}.config
			config.Families = []model.Family{model.IPv4}
			plan := resync(config, services, ruleset.NodeState{}, nil)
			namespace := netns.New(t)
			commit(t, dial(t, namespace, Options{}), plan.Batch)
			checkListed(t, namespace, plan.Batch, model.IPv4)
			listed := namespace.NFT("list", "ruleset")
			if got := strings.Count(listed, ` comment "`+test.want+`" : `); got != 4 {
				t.Errorf("%d of four frontends have the comment %s:\n%s", got, test.want, listed)
			}
		})
	}
}

func portID(namespace, service, port string) model.PortID {
	return model.PortID{
		Service: model.ObjectName{Namespace: namespace, Name: service}, Port: port, Protocol: model.TCP, Family: model.IPv4,
	}
}
